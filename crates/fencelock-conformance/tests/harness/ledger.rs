//! The ledger of the lab: its file, and what it counts.

use std::io::ErrorKind;
use std::path::PathBuf;

use fencelock::inspect::Claim;
use fencelock_lab::history::{Answer, History, Laws, Section, check};
use fencelock_lab::ledger::{Ledger, Row, read, sum, table};
use fencelock_lab::{Fault, Strategy, Toll, Uses, Verdict};

fn row(store: &str, grants: u64) -> Row {
    let mut row = Row { seconds: 1.5, seed: 7, longest_takeover_seconds: 2.0, ..Row::new(store, "Calm") };
    row.count("grants", grants);
    row
}

fn file(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("ledger.jsonl")
}

#[test]
fn rows_are_read_as_they_were_written_and_a_later_run_appends() {
    let directory = tempfile::tempdir().unwrap();
    let rows = [row("redis", 5), Row { not_run: Some("no root".to_owned()), ..row("zk", 0) }];
    for one in &rows {
        let mut ledger = Ledger::open(&file(&directory)).unwrap();
        ledger.add(one.clone()).unwrap();
    }
    assert_eq!(Ledger::open(&file(&directory)).unwrap().rows(), rows);
    assert_eq!(read(&file(&directory)).unwrap(), rows);
    let text = std::fs::read_to_string(file(&directory)).unwrap();
    assert!(
        text.starts_with("{\"format\":\"fencelock-ledger 1\",\"store\":\"redis\"") && text.lines().count() == 2,
        "{text}"
    );
}

#[test]
fn a_line_that_a_stop_cut_short_is_cut_off_by_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    Ledger::open(&file(&directory)).unwrap().add(row("redis", 5)).unwrap();
    let whole = std::fs::read_to_string(file(&directory)).unwrap();
    std::fs::write(file(&directory), format!("{whole}{}", &whole[..20])).unwrap();
    assert_eq!(read(&file(&directory)).unwrap().len(), 1);
    let mut ledger = Ledger::open(&file(&directory)).unwrap();
    ledger.add(row("zk", 6)).unwrap();
    assert_eq!(ledger.rows(), [row("redis", 5), row("zk", 6)]);
    assert_eq!(read(&file(&directory)).unwrap(), ledger.rows());
}

#[test]
fn a_file_that_another_run_writes_or_that_is_no_ledger_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(&file(&directory)).unwrap();
    assert_eq!(Ledger::open(&file(&directory)).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(ledger);
    std::fs::write(file(&directory), "{\"format\":\"fencelock-ledger 9\"}\n").unwrap();
    let error = Ledger::open(&file(&directory)).unwrap_err();
    assert!(error.to_string().ends_with("ledger.jsonl:1: no row of fencelock-ledger 1"), "{error}");
}

#[test]
fn a_sum_adds_counts_and_leaves_out_what_was_not_run_and_takeovers_of_a_machine_that_slept() {
    let slept = Row { slept_seconds: Some(60.0), longest_takeover_seconds: 61.0, ..row("redis", 5) };
    let not_run = Row { not_run: Some("no root".to_owned()), ..row("zk", 0) };
    let sums = sum(&[row("redis", 10), slept, not_run, row("etcd", 600)]);
    let counted: Vec<_> = sums.iter().map(|sum| (sum.store.as_str(), sum.counted("grants"), sum.seconds)).collect();
    assert_eq!(counted, [("redis", 15, 3.0), ("etcd", 600, 1.5), ("all", 615, 4.5)]);
    assert!(sums.iter().all(|sum| sum.is_clean() && sum.longest_takeover_seconds == 2.0), "{sums:?}");
    let table = table(&sums);
    assert!(table.contains("| pairs of believers | 0 | 3/615 |\n") && table.lines().count() == 18, "{table}");
    assert!(table.contains("| etcd | 0 | 0 | 0 | 0 | 0 | 2.0 |\n"), "{table}");
    let mut broken = row("etcd", 1);
    broken.count("tokens_fell", 2);
    assert!(!broken.is_clean() && fencelock_lab::ledger::table(&[broken]).contains("| tokens that fell | **2** | – |"));
}

/// A holder from `at` to `left`, which was granted with this token.
fn holder(history: &mut History, client: &str, at: u64, left: u64, token: i64) {
    let (lock, client) = (history.lock("lock-0"), history.client(client));
    let answer = Answer::Granted { at, token: Some(token) };
    let section = Section::called(lock, client, Claim::MUTEX, at - 1);
    history.sections.push(Section { answer, released: Some(left), gone: Some(left), ..section });
}

fn counted(history: History, faults: Vec<Fault>) -> Row {
    counted_by(Laws::ALL, history, faults)
}

fn counted_by(laws: Laws, history: History, faults: Vec<Fault>) -> Row {
    let report = check(&history, laws);
    let (strategy, uses, toll) = (Strategy::Calm, Uses::Mutexes, Toll::default());
    let (seed, remarks) = (1, Vec::new());
    Row::new("memory", "Calm").with(&Verdict { strategy, uses, seed, toll, laws, faults, remarks, report, history }, 0)
}

#[test]
fn two_believers_are_a_pair_whose_earlier_one_was_not_notified() {
    let mut history = History::default();
    holder(&mut history, "a", 10, 50, 1);
    holder(&mut history, "b", 30, 60, 2);
    let row = counted(history, Vec::new());
    let counts = ["grants", "believers", "unnotified", "foreign_releases", "tokens_fell"].map(|name| row.counted(name));
    assert_eq!((counts, row.is_clean()), ([2, 1, 1, 0, 0], false));
}

#[test]
fn a_release_between_the_grants_of_two_believers_freed_the_lock_of_the_first() {
    let mut history = History::default();
    holder(&mut history, "a", 10, 50, 1);
    holder(&mut history, "b", 30, 60, 2);
    holder(&mut history, "c", 2, 20, 0);
    assert_eq!(counted(history, Vec::new()).counted("foreign_releases"), 1);
}

#[test]
fn a_grant_tries_the_laws_that_its_store_claims_and_no_others() {
    let tried = |order, tokens| {
        let mut history = History::default();
        holder(&mut history, "a", 10, 50, 1);
        let row = counted_by(Laws { order, tokens }, history, Vec::new());
        ["grants", "grants_in_order", "grants_with_token"].map(|name| row.counted(name))
    };
    assert_eq!((tried(true, false), tried(false, true)), ([1, 1, 0], [1, 0, 1]));
    let mut row = row("redlock", 3);
    row.count("drills", 1);
    assert!(table(&[row]).contains("| tokens that fell | – | never tried |\n"));
}

#[test]
fn the_longest_takeover_counts_from_a_death_or_from_the_call_of_the_next_contender() {
    let mut history = History::default();
    for (client, at, died) in [("a", 1_000_000_000, 2_000_000_000), ("b", 5_000_000_000, 6_000_000_000)] {
        holder(&mut history, client, at, 0, at as i64);
        let section = history.sections.last_mut().unwrap();
        (section.released, section.gone, section.seen_inside) = (None, None, at);
        history.deaths.insert(section.client, died);
    }
    holder(&mut history, "c", 9_000_000_000, 10_000_000_000, 9_000_000_000);
    // The second contender called a nanosecond before its grant, and so did the third: no takeover took longer.
    assert!(counted(history.clone(), Vec::new()).longest_takeover_seconds < 1e-6);
    history.sections[2].called = 3_000_000_000;
    assert_eq!(counted(history, Vec::new()).longest_takeover_seconds, 3.0);
}

#[test]
fn faults_are_counted_by_their_kind() {
    let words = || "words".to_owned();
    let faults = vec![Fault::Stuck(words()), Fault::LeftBehind(words()), Fault::Failed(words()), Fault::Stuck(words())];
    let row = counted(History::default(), faults);
    assert_eq!(["stuck", "left_behind", "other"].map(|name| row.counted(name)), [2, 1, 1]);
}
