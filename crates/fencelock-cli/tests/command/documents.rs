//! The generated parts of the documents agree with the code; `cargo xtask docs` writes them anew.

use std::fmt::Write as _;
use std::time::Duration;

use fencelock::capability::{Capability, Liveness, Order, Pace, Peer, StoreInfo, Tokens, stores};

use crate::common::http::Served;
use crate::common::{Place, output};

const BEGIN: &str = "<!-- made by `cargo xtask docs`: begin -->";
const END: &str = "<!-- made by `cargo xtask docs`: end -->";

/// Compares the generated part of a document with the expected text, or writes it if `FENCELOCK_WRITE_DOCUMENTS` is set.
fn says(document: &str, made: &str) {
    let path = format!("{}/../../docs/{document}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let now = format!("{before}{BEGIN}\n\n{made}\n{END}{after}");
    if std::env::var_os("FENCELOCK_WRITE_DOCUMENTS").is_some() {
        std::fs::write(path, now).unwrap();
    } else {
        assert!(now == text, "{document} is not what the code says: run `cargo xtask docs`");
    }
}

#[test]
fn the_stores_have_the_capabilities_that_their_document_lists() {
    says("stores.md", &format!("{}\n{}\n{}", table(stores()), layouts(stores()), options(stores())));
}

#[test]
fn all_figures_of_programs_and_of_serve_stand_in_one_table() {
    let code = document("crates/fencelock/src/metrics.rs");
    let of_programs =
        code.lines().filter_map(|line| line.strip_prefix("/// ").filter(|line| line.starts_with("| `fencelock_")));
    let mut table = "| figure | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
    of_programs.for_each(|line| table.extend([line, "\n"]));
    let place = Place::new();
    let _ = output(&mut place.run(&["--slot", "a", "nightly"], "true"));
    let _holder = place.holder("job");
    let served = Served::start(&place, &[]);
    served.counts("fencelock_store_job_failed{name=\"nightly\"}", "0");
    let text = served.get("/metrics").body;
    for about in text.split("# HELP ").skip(1) {
        let (head, lines) = about.split_once("\n# TYPE ").unwrap();
        let ((name, help), mut lines) = (head.split_once(' ').unwrap(), lines.lines());
        let kind = lines.next().unwrap().rsplit_once(' ').unwrap().1;
        let labels = lines.next().and_then(|line| line.split_once('{')).map_or("", |(_, labels)| labels);
        let labels: Vec<_> =
            labels.split("\"").step_by(2).filter_map(|label| label.trim_start_matches(',').strip_suffix('=')).collect();
        let labels: Vec<_> = labels.iter().filter(|label| **label != "le").map(|label| format!("`{label}`")).collect();
        let _ = writeln!(table, "| `{name}` | {kind} | {} | {} |", labels.join(", "), help.trim_end_matches('.'));
    }
    says("operating.md", &table);
}

#[test]
fn the_table_of_stores_has_short_cells_and_few_lines() {
    let text = document("docs/stores.md");
    assert!(text.lines().count() <= 250, "docs/stores.md has {} lines", text.lines().count());
    let cells = text.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.trim_matches('|').split('|'));
    let long: Vec<_> = cells.filter(|cell| cell.split_whitespace().count() > 12).collect();
    assert!(long.is_empty(), "cells of docs/stores.md have at most 12 words: {long:#?}");
}

/// Every hop of the two walks, side by side, is `path::function`, and the function is in that file.
#[test]
fn the_walks_of_an_acquire_name_functions_that_are_there() {
    let text = document("ARCHITECTURE.md");
    let walks = text.split_once("```text walk\n").unwrap().1.split_once("```").unwrap().0;
    for column in 0..2 {
        let hops: Vec<_> = walks.lines().filter_map(|line| hop(line.split('|').nth(column)?)).collect();
        let files: std::collections::BTreeSet<_> = hops.iter().map(|(file, _)| file).collect();
        assert!(hops.len() > 9 && hops.len() <= 18 && files.len() <= 9, "{} hops, {} files", hops.len(), files.len());
        for (file, function) in &hops {
            let code = document(&format!("crates/fencelock/src/{file}"));
            let (owner, name) = function.rsplit_once("::").unwrap_or(("", function));
            assert!(code.contains(&format!("fn {name}(")) || code.contains(&format!("fn {name}<")), "{file}: {name}");
            assert!(code.contains(owner), "{file}: {owner}");
        }
    }
}

/// The file and the function of a hop.
fn hop(text: &str) -> Option<(String, &str)> {
    let (file, function) = text.split_whitespace().find_map(|word| word.split_once(".rs::"))?;
    Some((format!("{file}.rs"), function))
}

/// A file of the repository.
fn document(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn run_takes_the_kinds_of_locks_that_its_document_lists() {
    says("command.md", &kinds(stores()));
}

/// Which kinds of locks `fencelock run` takes on which stores: `run` refuses the store of a single process.
fn kinds(stores: &[StoreInfo]) -> String {
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    for info in stores {
        let Some(capability) = info.capability.map(|capability| capability()) else { continue };
        let kinds = match (capability.liveness, capability.permits) {
            (Liveness::Memory, _) => "nothing: no other process sees it (64)",
            (_, true) => "mutexes, `--shared`, `--exclusive`, `--permits`",
            (_, false) => "mutexes; `--shared`, `--exclusive` and `--permits` are refused (64)",
        };
        let scheme = format!("`{}:`", info.scheme);
        match rows.iter_mut().find(|(of, _)| *of == kinds) {
            Some((_, schemes)) => schemes.push(scheme),
            None => rows.push((kinds, vec![scheme])),
        }
    }
    let rows = rows.iter().map(|(kinds, schemes)| format!("| {} | {kinds} |\n", schemes.join(" ")));
    format!("| on | `run` takes |\n|---|---|\n{}", rows.collect::<String>())
}

/// A column for each family: schemes that promise the same share one.
fn table(stores: &[StoreInfo]) -> String {
    let mut families: Vec<(Vec<&StoreInfo>, Capability)> = Vec::new();
    for info in stores {
        let Some(capability) = info.capability.map(|capability| capability()) else { continue };
        match families.last_mut() {
            Some((family, promised)) if *promised == capability => family.push(info),
            _ => families.push((vec![info], capability)),
        }
    }
    let heads: Vec<_> = families.iter().map(|(family, _)| each(family, |info| format!("`{}:`", info.scheme))).collect();
    let mut table = format!("| | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for (title, cell) in ROWS {
        let cells: Vec<_> =
            families.iter().map(|(family, capability)| each(family, |info| cell(info, capability))).collect();
        let _ = writeln!(table, "| {title} | {} |", cells.join(" | "));
    }
    table
}

/// A cell of a family: equal cells once, different ones after each other.
fn each(family: &[&StoreInfo], cell: impl Fn(&StoreInfo) -> String) -> String {
    let mut cells: Vec<String> = Vec::new();
    for cell in family.iter().map(|info| cell(info)) {
        cells.extend(Some(cell).filter(|cell| !cells.contains(cell)));
    }
    cells.join("<br>")
}

/// The promises of other layouts, a line for each. A store has the same layouts over TLS and over a socket file.
fn layouts(stores: &[StoreInfo]) -> String {
    let heads =
        ["layout", "the same locks as", "order", "fencing tokens", "readers, writers, permits", "an idle name leaves"];
    let mut table = format!("| URL | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    let (mut told, mut rows): (Vec<&str>, Vec<(&str, String, String)>) = Default::default();
    for info in stores.iter().filter(|info| !info.layouts.is_empty()) {
        let asked: Vec<_> = info.layouts.iter().map(|(asked, _)| *asked).collect();
        if told == asked {
            continue;
        }
        told = asked;
        for (asked, capability) in info.layouts {
            let capability = capability();
            let shown = ROWS.iter().filter(|(title, _)| heads.contains(title));
            let cells = shown.map(|(_, cell)| cell(info, &capability)).collect::<Vec<_>>().join(" | ");
            match rows.iter_mut().find(|(known, same, _)| known == asked && *same == cells) {
                Some((.., urls)) => {
                    let _ = write!(urls, ", `{}:…`", info.scheme);
                }
                None => rows.push((asked, cells, format!("`{}:…?{asked}`", info.scheme))),
            }
        }
    }
    for (_, cells, urls) in rows {
        let _ = writeln!(table, "| {urls} | {cells} |");
    }
    table
}

type Cell = fn(&StoreInfo, &Capability) -> String;

const ROWS: &[(&str, Cell)] = &[
    ("URL", |info, _| format!("`{}`", info.example)),
    ("cargo feature", |info, _| format!("`{}`", info.feature)),
    ("layout", |_, capability| format!("`{}`", capability.layout)),
    ("a place lives by", |_, capability| liveness(capability.liveness)),
    ("the same locks as", |_, capability| others(capability.same_as)),
    ("order", |_, capability| order(capability.order)),
    ("fencing tokens", |_, capability| tokens(capability.tokens)),
    ("validity presumes", |_, capability| or_none(capability.presumes)),
    ("readers, writers, permits", |_, capability| claims(capability)),
    ("notes on locks", |_, capability| if capability.notes { "yes" } else { "no" }.to_owned()),
    ("a dead session's places go within ttl plus", |_, capability| duration(capability.detection_slack)),
    ("a waiter notices a change within", |_, capability| duration(capability.wake_bound)),
    ("renewals in a ttl, by default", |_, capability| renewals(&capability.pace)),
    ("the shortest ttl", |_, capability| duration(capability.pace.least_ttl)),
    ("the safety margin is at least, by default", |_, capability| duration(capability.pace.least_margin)),
    ("an idle name leaves", |_, capability| or_none(capability.residue)),
];

fn renewals(pace: &Pace) -> String {
    let most = pace.longest_interval.map(|most| format!(", and one every {} at least", duration(most)));
    format!("{}{}", pace.renewals_per_ttl, most.unwrap_or_default())
}

/// The options in the URL of a store, a line for each set of options, with the TLS options once. Schemes with the same options share a line.
fn options(stores: &[StoreInfo]) -> String {
    const TLS: [&str; 3] = ["tls_ca", "tls_cert", "tls_key"];
    let mut lines: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    let mut with_tls = Vec::new();
    for info in stores.iter().filter(|info| !info.options.is_empty()) {
        let scheme = format!("`{}:`", info.scheme);
        let (tls, others): (Vec<&str>, Vec<&str>) = info.options.iter().partition(|option| TLS.contains(option));
        assert!(tls.is_empty() || tls == TLS, "{scheme} {tls:?}");
        with_tls.extend(tls.first().map(|_| scheme.clone()));
        match lines.iter_mut().find(|(of, _)| *of == others) {
            Some((_, schemes)) => schemes.push(scheme),
            None => lines.push((others, vec![scheme])),
        }
    }
    let quoted = |options: &[&str]| options.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(" ");
    let lines = lines.iter().map(|(options, schemes)| format!("- {}: {}\n", schemes.join(" "), quoted(options)));
    let tls = format!("- {}: also {}\n", with_tls.join(" "), quoted(&TLS));
    format!("Options of the URL:\n\n{}{tls}", lines.collect::<String>())
}

fn liveness(liveness: Liveness) -> String {
    match liveness {
        Liveness::Process => "its process; no clock counts",
        Liveness::Session => "a session, by the servers' monotonic clock",
        Liveness::Lease => "a lease, by the server's wall clock",
        Liveness::Memory => "the memory of one process",
        _ => "see its notes",
    }
    .to_owned()
}

fn order(order: Order) -> String {
    match order {
        Order::Fifo => "of arrival",
        Order::None => "none",
        _ => "see its notes",
    }
    .to_owned()
}

fn tokens(tokens: Tokens) -> String {
    match tokens {
        Tokens::ClockFlooredCounter => "a counter above the clock",
        Tokens::CommitNumber => "the commit's number",
        Tokens::Counter => "a counter, until the store loses it",
        Tokens::None => "none",
        _ => "see its notes",
    }
    .to_owned()
}

fn duration(duration: Duration) -> String {
    if duration.is_zero() { "nothing".to_owned() } else { format!("{duration:?}") }
}

fn others(peers: &[Peer]) -> String {
    if peers.is_empty() { "fencelock only".to_owned() } else { or_none(peers) }
}

fn or_none(said: &[impl ToString]) -> String {
    let said: Vec<_> = said.iter().map(ToString::to_string).collect();
    if said.is_empty() { "nothing".to_owned() } else { said.join(", ") }
}

fn claims(capability: &Capability) -> String {
    match (capability.shared_claims, capability.permits) {
        (true, true) => "yes",
        (true, false) => "readers and writers",
        _ => "no",
    }
    .to_owned()
}
