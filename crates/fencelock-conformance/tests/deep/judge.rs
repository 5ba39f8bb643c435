//! The second judge: porcupine, asked by the Go program in `interop/judge` about the same logs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use fencelock_lab::history::{
    Answer, History, Lapse, Laws, LogEvent, LogWriter, RegisterLog, Section, Write, check, read_directory,
};

/// Builds the judge once.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("judge");
        let mut go = Command::new("go");
        go.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
        go.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/judge"));
        let output = go.output().expect("Go is needed, and a module proxy; Debian's package is golang-go");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    })
}

/// Whether a fenced lock that keeps this order, or none, can have done what the logs of `directory` say.
pub(crate) fn is_possible(directory: &Path, laws: Laws) -> bool {
    let order = if laws.order { "ordered" } else { "unordered" };
    let output = Command::new(program()).arg(directory).args(["2m", order]).output().unwrap();
    match output.status.code() {
        Some(0) => true,
        Some(1) => false,
        _ => panic!("no verdict over {}: {output:?}", directory.display()),
    }
}

/// The second judge has the same verdict.
pub(crate) fn judge_again(history: &History, possible: bool) {
    let directory = tempfile::tempdir().unwrap();
    write(history, directory.path()).unwrap();
    assert_eq!(is_possible(directory.path(), Laws::ALL), possible);
}

/// Writes the logs that give this history into `directory`, which is empty: a log for each client, a log for the resources, and the lapses.
fn write(history: &History, directory: &Path) -> io::Result<()> {
    for (number, client) in history.clients.iter().enumerate() {
        let log = LogWriter::create(&directory.join(format!("client-{number}.log")), client)?;
        let its = |(_, section): &(usize, &Section)| section.client as usize == number;
        for (index, section) in history.sections.iter().enumerate().filter(its) {
            log_section(history, &log, index as u64, section)?;
        }
    }
    let lapses = history.lapses.iter().map(|Lapse { from, over, by, believed_until }| {
        format!(r#"{{"from":{from},"over":{over},"by":{by},"believed_until":{believed_until}}}"#)
    });
    std::fs::write(directory.join("lapses.json"), format!("[{}]", lapses.collect::<Vec<_>>().join(",")))?;
    let resources = RegisterLog::open(&directory.join("resources.log"))?;
    let write = |write: &Write| resources.write(&history.locks[write.lock as usize], write.token, write.accepted);
    history.writes.iter().try_for_each(write)
}

fn log_section(history: &History, log: &LogWriter, number: u64, section: &Section) -> io::Result<()> {
    let Section { claim, called, enqueue, answer, seen_inside, released, belief_end, gone, .. } = *section;
    let acquire = LogEvent::Acquire { lock: history.locks[section.lock as usize].as_str(), claim };
    log.write_at(number, called, acquire)?;
    if let Some(place) = enqueue {
        log.write_at(number, place.returned, LogEvent::Enqueued { called: place.called })?;
    }
    match answer {
        Answer::Unanswered => {}
        Answer::Granted { at, token } => log.write_at(number, at, LogEvent::Granted { token })?,
        Answer::Busy { at } => log.write_at(number, at, LogEvent::Busy)?,
        Answer::GaveUp { at } => log.write_at(number, at, LogEvent::GaveUp)?,
    }
    let inside = Some(seen_inside).filter(|at| *at > 0);
    let moments = [
        (inside, LogEvent::Inside),
        (belief_end, LogEvent::BeliefEnds),
        (released, LogEvent::Release),
        (gone, LogEvent::Gone),
    ];
    moments.into_iter().try_for_each(|(at, event)| at.map_or(Ok(()), |at| log.write_at(number, at, event)))
}

fn granted(section: &Section) -> u64 {
    if let Answer::Granted { at, .. } = section.answer { at } else { u64::MAX }
}

/// Plants a second holder, a token that falls, and a late write into the logs of one lock.
pub(crate) fn plant_faults(logs: &Path) {
    let mut history = read_directory(logs, 0).unwrap();
    judge_again(&history, true);
    let in_time = |section: &&mut Section| section.lock == 0 && section.core().is_some_and(|(start, end)| start < end);
    let mut holders: Vec<&mut Section> = history.sections.iter_mut().filter(in_time).collect();
    holders.sort_unstable_by_key(|section| granted(section));
    let middle = holders.len() / 2;
    let (first, second) = (*holders[middle], *holders[middle + 1]);
    let plant = |plant: fn(&mut Section, &Section)| {
        let mut history = read_directory(logs, 0).unwrap();
        let planted = history.sections.iter_mut().find(|section| **section == first).unwrap();
        plant(planted, &second);
        assert!(!check(&history, Laws::ALL).is_clean());
        judge_again(&history, false);
    };
    plant(|first, second| (first.released, first.belief_end) = (Some(granted(second) + 1), None));
    plant(|first, second| first.answer = Answer::Granted { at: granted(first), token: second_token(second) });
    history = read_directory(logs, 0).unwrap();
    let late = Write { lock: history.writes[0].lock, token: -1, accepted: true };
    history.writes.push(late);
    assert!(!check(&history, Laws::ALL).is_clean());
    judge_again(&history, false);
}

fn second_token(section: &Section) -> Option<i64> {
    if let Answer::Granted { token, .. } = section.answer { token } else { None }
}
