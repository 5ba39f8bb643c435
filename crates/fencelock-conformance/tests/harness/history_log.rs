//! Logs are read back as they were written, also from a process that was killed in the middle of a line.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use fencelock::inspect::Claim;
use fencelock_lab::history::{Answer, Enqueue, Laws, LogEvent, LogWriter, RegisterLog, check, read_directory};

/// A directory of this test's own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fencelock-log-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write_section(log: &LogWriter, section: u64, start: u64, token: i64) {
    let events = [
        (0, LogEvent::Acquire { lock: "a lock", claim: Claim::MUTEX }),
        (1, LogEvent::Enqueued { called: start }),
        (2, LogEvent::Granted { token: Some(token) }),
        (4, LogEvent::Inside),
        (6, LogEvent::Release),
        (8, LogEvent::Gone),
    ];
    for (offset, event) in events {
        log.write_at(section, start + offset, event).unwrap();
    }
}

fn append(path: &Path, text: &str) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_written_log_is_read_back() {
    let directory = Directory::new("back");
    let path = directory.path("one.log");
    let log = LogWriter::create(&path, "worker 1").unwrap();
    write_section(&log, 1, 100, 7);
    log.write_at(2, 110, LogEvent::Acquire { lock: "b", claim: Claim::new(2, 5).unwrap() }).unwrap();
    log.write_at(2, 111, LogEvent::Busy).unwrap();
    log.write_at(3, 120, LogEvent::Acquire { lock: "b", claim: Claim::READER }).unwrap();
    log.write_at(3, 121, LogEvent::GaveUp).unwrap();
    log.write_at(4, 130, LogEvent::Acquire { lock: "b", claim: Claim::WRITER }).unwrap();
    log.write_at(4, 131, LogEvent::Granted { token: None }).unwrap();
    log.write_at(4, 133, LogEvent::BeliefEnds).unwrap();
    log.write_at(0, 134, LogEvent::Note { text: "in\ntwo lines" }).unwrap();
    let history = read_directory(path.parent().unwrap(), 0).unwrap();
    assert_eq!((history.clients, history.locks), (vec!["worker 1".to_owned()], vec!["a lock".into(), "b".into()]));
    let [first, second, third, fourth] = history.sections[..] else { panic!("{:?}", history.sections) };
    assert_eq!(first.enqueue, Some(Enqueue { called: 100, returned: 101 }));
    assert_eq!(first.answer, Answer::Granted { at: 102, token: Some(7) });
    assert_eq!((first.seen_inside, first.released, first.gone), (104, Some(106), Some(108)));
    assert_eq!((second.lock, second.claim.weight(), second.answer), (1, 2, Answer::Busy { at: 111 }));
    assert_eq!((third.claim, third.answer), (Claim::READER, Answer::GaveUp { at: 121 }));
    assert_eq!((fourth.core(), fourth.gone), (Some((131, 131)), None));
}

#[test]
fn a_log_that_breaks_off_is_read_up_to_its_last_whole_line() {
    let directory = Directory::new("cut");
    let path = directory.path("one.log");
    write_section(&LogWriter::create(&path, "worker 1").unwrap(), 1, 100, 7);
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let history = read_directory(path.parent().unwrap(), 0).unwrap();
        let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(history.sections.len(), usize::from(lines >= 2), "{length}");
        assert_eq!(history.sections.first().and_then(|section| section.released).is_some(), lines >= 6, "{length}");
    }
}

#[test]
fn lines_that_are_not_understood_are_named() {
    let directory = Directory::new("bad");
    let header = r#"{"format":"fencelock-sections 1","client":"worker"}"#;
    let acquire = r#"{"section":1,"at":100,"event":"acquire","lock":"lock","weight":1,"capacity":1}"#;
    for (lines, line) in [
        (&[r#"{"format":"fencelock-sections 2","client":"worker"}"#][..], 1),
        (&[r#"{"format":"fencelock-sections 1"}"#], 1),
        (&[header, r#"{"section":5,"at":100,"event":"granted","token":7}"#], 2),
        (&[header, acquire, r#"{"section":1,"at":"x","event":"granted","token":7}"#], 3),
        (&[header, acquire, r#"{"section":1,"at":101,"event":"vanished"}"#], 3),
        (&[header, r#"{"section":1,"at":100,"event":"acquire","lock":"lock","weight":2,"capacity":1}"#], 2),
        (&[r#"{"format":"fencelock-writes 1"}"#, r#"{"lock":"lock","token":7,"accepted":"maybe"}"#], 2),
    ] {
        let path = directory.path("bad.log");
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let error = read_directory(path.parent().unwrap(), 0).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(&format!("bad.log:{line}: ")), "{error}");
    }
}

#[test]
fn the_logs_of_a_directory_make_one_history() {
    let directory = Directory::new("all");
    let (one, two) = (directory.path("1.log"), directory.path("2.log"));
    write_section(&LogWriter::create(&one, "worker 1").unwrap(), 1, 100, 7);
    write_section(&LogWriter::create(&two, "worker 2").unwrap(), 1, 200, 8);
    let text = r#"{"section":2,"at":300,"event":"acquire","lock":"a lock","weight":1,"capacity":1}"#;
    append(&two, &format!("{text}\n"));
    let parent = LogWriter::create(&directory.path("parent.log"), "parent").unwrap();
    parent.write_at(0, 1_000, LogEvent::Dead { client: "worker 2" }).unwrap();
    let register = RegisterLog::open(&directory.path("register.log")).unwrap();
    register.write("a lock", 8, true).unwrap();
    RegisterLog::open(&directory.path("register.log")).unwrap().write("a lock", 7, false).unwrap();
    fs::write(directory.path("notes.txt"), "not a log").unwrap();

    let history = read_directory(&directory.0, 50).unwrap();
    let report = check(&history, Laws::ALL);
    assert!(report.is_clean(), "{}", report.describe(&history));
    assert_eq!((report.sections, report.grants, report.writes), (3, 2, (2, 1)));
    // The dead contender is gone once the store has had the time to notice.
    assert_eq!(
        history.sections.iter().map(|section| section.gone).collect::<Vec<_>>(),
        [Some(108), Some(208), Some(1_050)]
    );
}
