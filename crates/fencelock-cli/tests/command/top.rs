//! `fencelock top` on a real pseudo-terminal, and without one.

use std::process::{Command, Stdio};

use fencelock_testbed::redis::{Server, Settings};

use crate::common::terminal::Screen;
use crate::common::{PROGRAM, Place, Running, code, ended, output, stderr, stdout};

/// `fencelock top` on a terminal of this size.
fn top(place: &Place, rows: u32, columns: u32) -> Screen {
    let mut shell = Command::new("sh");
    let script = format!("stty rows {rows} cols {columns}; exec \"$FL\" top --every 20ms");
    shell.args(["-c", &script]).env("FL", PROGRAM).env("TERM", "xterm").env("FENCELOCK_STORE", place.url());
    Screen::start(&shell)
}

#[test]
fn locks_are_shown_as_they_change_and_the_terminal_is_given_back() {
    for (rows, columns) in [(24, 80), (5, 20)] {
        let place = Place::new();
        let holder = place.holder("job/one");
        let mut screen = top(&place, rows, columns);
        screen.shows("WAITING");
        screen.shows("job/one");
        if columns == 80 {
            // Between words the cursor is moved, and no space is written.
            screen.shows(&holder.pid().to_string());
        }
        let _other = place.holder("other");
        screen.shows("other");
        screen.types("q");
        // The other screen of the terminal, which was there before.
        screen.shows("\u{1b}[?1049l");
        assert_eq!(screen.code(), 0);
    }
}

#[test]
fn a_long_name_has_what_is_left_of_eighty_columns_and_enter_opens_its_queue() {
    let place = Place::new();
    let name = "orders/europe/berlin/warehouse-7/pick/4711";
    let _holder = place.holder(name);
    let waiter = Running::start(place.run(&["--quiet", name], "cat").stdin(Stdio::piped()));
    place.queued(name, 2);
    let mut screen = top(&place, 24, 80);
    screen.shows("Enter:");
    screen.shows(name);
    screen.shows("1 █");
    screen.types("\r");
    screen.shows("POSITION");
    screen.shows("waiter");
    screen.shows(&waiter.pid().to_string());
    screen.types("\u{1b}");
    // `top` writes changed cells only: all these letters change.
    screen.shows("locks,");
    screen.types("q");
    assert_eq!(screen.code(), 0);
}

#[test]
fn an_outage_is_said_and_ends() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000", server.url()));
    let _holder = place.holder("job");
    let mut screen = top(&place, 24, 120);
    screen.shows("job");
    server.kill();
    screen.shows("cannot be read since");
    server.restart().unwrap();
    screen.shows("answers in");
    screen.types("\u{3}");
    assert_eq!(screen.code(), 0);
}

#[test]
fn once_prints_those_first_that_most_wait_for() {
    let place = Place::new();
    let (_one, _two) = (place.holder("a\u{202e}b"), place.holder("b"));
    let _waiter = Running::start(place.run(&["--quiet", "b"], "cat").stdin(Stdio::piped()));
    place.queued("b", 2);
    let done = output(&mut place.fencelock(&["top", "--once"]));
    let text = stdout(&done);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((code(&done), stderr(&done), lines.len()), (0, String::new(), 4), "{text}");
    assert!(
        lines[0].starts_with("NAME") && lines[1].starts_with("b ") && lines[2].starts_with("a\\u{202e}b"),
        "{text}"
    );
    assert_eq!(lines[3], "2 locks, 2 holders, 1 waiting");
    let (code, said) = ended(&mut place.fencelock(&["top"]));
    assert_eq!((code, said.contains("--once")), (64, true), "{said}");
}
