//! `fencelock run` with the programs that people use at a terminal, in the scripts and pipelines that they write.

use std::path::Path;
use std::process::Command;

use crate::common::terminal::{Screen, in_front, shell};
use crate::common::{Place, ended, is_alive, stopped, until, written};
use fencelock_testbed::TERMINAL_PROGRAMS;

const INTERRUPT: &str = "\u{3}";
const QUIT: &str = "\u{1c}";
const SUSPEND: &str = "\u{1a}";
const ESCAPE: &str = "\u{1b}";

fn pid(place: &Place, file: &str) -> i32 {
    written(&place.path(file)).trim().parse().unwrap()
}

/// A script that would run the command three times, in front of a terminal.
fn script(place: &Place, command: &str) -> Screen {
    let script = format!(
        "for round in 1 2 3; do \"$FL\" run job -- sh -c '{command}'; echo $? >> codes; done; echo survived > survived\n"
    );
    std::fs::write(place.path("script"), script).unwrap();
    let mut bash = Command::new("bash");
    bash.arg(place.path("script")).env("FL", crate::common::PROGRAM).env("FENCELOCK_STORE", place.url());
    bash.current_dir(place.directory.path());
    Screen::start(&bash)
}

#[test]
fn interrupt_ends_the_loop_that_calls_us() {
    // Once with the terminal around the command, once with the command in front of it.
    for command in ["echo $$ > command; exec sleep 600", "echo $$ > command; exec cat"] {
        let place = Place::new();
        let mut screen = script(&place, command);
        let command_pid = pid(&place, "command");
        if command.ends_with("cat") {
            in_front(command_pid);
        }
        screen.types(INTERRUPT);
        assert_eq!(screen.code(), 130, "{command}");
        assert!(!place.path("survived").exists() && !is_alive(command_pid), "{command}");
        assert_eq!(place.contenders("job").len(), 0);
    }
}

#[test]
fn quit_ends_the_command_and_us_of_its_signal_and_bash_which_ignores_it_continues() {
    let place = Place::new();
    // The pid goes through a file: bash prints the command line of a job that QUIT killed, with any words that the
    // command would have printed.
    let mut screen = script(&place, "echo $$ > command; exec sleep 600");
    for _ in 0..3 {
        pid(&place, "command");
        std::fs::remove_file(place.path("command")).unwrap();
        screen.types(QUIT);
    }
    assert_eq!(screen.code(), 0);
    assert_eq!(written(&place.path("codes")), "131\n131\n131\n");
    assert!(place.path("survived").exists());
    assert_eq!(place.contenders("job").len(), 0);
}

#[test]
fn a_command_that_bears_an_interrupt_lets_the_loop_go_on() {
    let place = Place::new();
    let mut screen = script(&place, "trap \"exit 0\" INT; echo ready $round; while ! test -e go; do sleep 0.02; done");
    screen.shows("ready");
    screen.types(INTERRUPT);
    screen.shows("ready");
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(screen.code(), 0);
    assert!(place.path("survived").exists());
}

#[test]
fn interrupt_ends_the_loop_while_it_waits_for_the_lock() {
    let place = Place::new();
    let _holder = place.holder("job");
    let mut screen = script(&place, "true");
    place.queued("job", 2);
    screen.types(INTERRUPT);
    assert_eq!(screen.code(), 130);
    assert!(!place.path("survived").exists());
    assert_eq!(place.contenders("job").len(), 1);
}

#[test]
fn a_pager_behind_us_pages_and_ends_us() {
    TERMINAL_PROGRAMS.require();
    let place = Place::new();
    let mut screen = shell(&place);
    screen.types("\"$FL\" run job -- seq 1 100000 | less; echo code=$?\n");
    screen.shows("\n23");
    screen.types(" ");
    screen.shows("\n46");
    screen.types("q");
    screen.shows("code=0");
    until("no client holds the lock", || (place.contenders("job").is_empty()).then_some(()));
}

#[test]
fn a_pipeline_that_is_suspended_stops_the_command_and_continues_with_it() {
    let place = Place::new();
    let mut screen = shell(&place);
    let work = "echo $PPID > fencelock; echo $$ > command; while ! test -e go; do echo x >> log; sleep 0.02; done; cat";
    screen.types(&format!("echo through | \"$FL\" run job -- sh -c '{work}' | cat\n"));
    let (fencelock, command) = (pid(&place, "fencelock"), pid(&place, "command"));
    in_front(fencelock);
    for _ in 0..2 {
        screen.types(SUSPEND);
        screen.shows("here> ");
        stopped(command);
        screen.types("fg\n");
        let length = || std::fs::metadata(place.path("log")).map_or(0, |log| log.len());
        let before = length();
        until("the command continues", || (length() > before).then_some(()));
    }
    std::fs::write(place.path("go"), "").unwrap();
    screen.shows("through\r\n");
    screen.shows("here> ");
}

#[test]
fn an_editor_edits_is_suspended_and_comes_back() {
    TERMINAL_PROGRAMS.require();
    let place = Place::new();
    let mut screen = shell(&place);
    screen.types("\"$FL\" run job -- vim -u NONE -N -n text\n");
    screen.shows("~");
    screen.types(&format!("ifirst line{ESCAPE}"));
    screen.shows("first line");
    screen.types(SUSPEND);
    screen.shows("here> ");
    assert_eq!(place.contenders("job").len(), 1);
    screen.types("fg\n");
    screen.shows("first line");
    // The editor may drop keys that are typed while it takes the terminal back, as any program may.
    let mut looks = 0;
    until("the editor obeys", || {
        if looks % 100 == 0 {
            screen.types(&format!("{ESCAPE}:w! proof\r"));
        }
        looks += 1;
        place.path("proof").exists().then_some(())
    });
    screen.types(&format!("osecond{ESCAPE}:wq\r"));
    screen.shows("here> ");
    assert_eq!(std::fs::read_to_string(place.path("text")).unwrap(), "first line\nsecond\n");
}

#[test]
fn a_pager_under_the_lock_pages() {
    TERMINAL_PROGRAMS.require();
    let place = Place::new();
    let mut screen = shell(&place);
    screen.types("seq 1 1000 > numbers; seq 1 3 | \"$FL\" run job -- less numbers; echo code=$?\n");
    screen.shows("\n23");
    screen.types(" ");
    screen.shows("\n46");
    screen.types("q");
    screen.shows("code=0");
}

#[test]
fn a_shell_under_the_lock_controls_its_own_jobs() {
    let place = Place::new();
    let mut screen = shell(&place);
    screen.types("PS1='in''> ' \"$FL\" run job -- bash --norc --noprofile -i; echo code=$?\n");
    screen.shows("in> ");
    // In front, not only typed: a key that comes before reaches the shell.
    screen.types("sh -c 'echo $$ > sleeper; exec sleep 600'\n");
    in_front(pid(&place, "sleeper"));
    screen.types(INTERRUPT);
    screen.shows("in> ");
    screen.types("sh -c 'echo $$ > reader; exec cat'\n");
    in_front(pid(&place, "reader"));
    screen.types("echoed\n");
    screen.shows("echoed\r\nechoed\r\n");
    screen.types(SUSPEND);
    screen.shows("Stopped");
    screen.shows("in> ");
    screen.types("fg\n");
    in_front(pid(&place, "reader"));
    screen.types("again\n");
    screen.shows("again\r\nagain\r\n");
    screen.types(INTERRUPT);
    screen.shows("in> ");
    screen.types("exit 3\n");
    screen.shows("code=3");
}

#[test]
fn a_password_is_asked_for_at_the_terminal_with_any_stdin() {
    TERMINAL_PROGRAMS.require();
    let place = Place::new();
    let key = place.path("key");
    let mut generate = Command::new("ssh-keygen");
    generate.args(["-q", "-t", "ed25519", "-N", "s3cret", "-f"]).arg(&key);
    assert_eq!(ended(&mut generate).0, 0);
    // The program itself, and started by a shell, which is stopped together with it.
    for (feed, command) in [("", "ssh-keygen -y -f key"), ("echo fed | ", "sh -c \"ssh-keygen -y -f key; true\"")] {
        let mut screen = shell(&place);
        screen.types(&format!("{feed}\"$FL\" run job -- {command} > public; echo code=$?\n"));
        screen.shows("passphrase");
        screen.asks_for_a_secret();
        screen.types("s3cret\n");
        screen.shows("code=0");
        assert_eq!(key_of(&place.path("public")), key_of(&place.path("key.pub")), "{command}");
    }
}

fn key_of(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn a_job_in_the_background_that_waits_for_the_terminal_can_be_ended() {
    // A continued command reads the terminal again at once, although `kill` ends it. The scheduler decides which comes
    // first.
    for _ in 0..10 {
        let place = Place::new();
        let mut screen = shell(&place);
        screen.types("\"$FL\" run job -- sh -c 'echo $$ > command; read line < /dev/tty' &\n");
        let command = pid(&place, "command");
        screen.shows("Stopped");
        stopped(command);
        // Not `wait`: bash returns from it at once while bash has not yet seen that the job was continued.
        screen.types("kill %1\n");
        until("the command is ended", || (!is_alive(command)).then_some(()));
        until("the lock is given back", || place.contenders("job").is_empty().then_some(()));
    }
}

#[test]
fn a_reader_behind_us_gets_the_terminal_back_when_it_wants_it() {
    let place = Place::new();
    let mut screen = shell(&place);
    let asks = "echo $$ > command; read first < /dev/tty; echo \"got $first\" > first; while ! test -e go; do sleep 0.02; done; echo through";
    screen.types(&format!(
        "\"$FL\" run job -- sh -c '{asks}' | sh -c 'cat; read second < /dev/tty; echo \"<$second>\"'\n"
    ));
    in_front(pid(&place, "command"));
    screen.types("one\n");
    assert_eq!(written(&place.path("first")), "got one\n");
    std::fs::write(place.path("go"), "").unwrap();
    screen.shows("through\r\n");
    screen.types("two\n");
    screen.shows("<two>");
    screen.shows("here> ");
}

#[test]
fn a_command_under_two_locks_gets_the_terminal_and_is_suspended_with_both() {
    let place = Place::new();
    let mut screen = shell(&place);
    let asks = "read x < /dev/tty; echo \"got <$x>\"; read y < /dev/tty; echo \"then <$y>\"";
    screen.types(&format!("\"$FL\" run outer -- \"$FL\" run inner -- sh -c 'echo $$ > command; {asks}'\n"));
    let command = pid(&place, "command");
    in_front(command);
    screen.types("one\n");
    screen.shows("got <one>");
    for _ in 0..2 {
        screen.types(SUSPEND);
        screen.shows("here> ");
        stopped(command);
        screen.types("fg\n");
        in_front(command);
    }
    screen.types("two\n");
    screen.shows("then <two>");
    screen.shows("here> ");
}
