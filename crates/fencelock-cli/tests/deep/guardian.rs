//! A lock that can lapse and a fencelock that is killed or stopped: no process of its command runs while the next
//! holder has the lock.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::common::{Place, Running, children, code, ended, is_alive, stderr, stopped, until, written};
use fencelock_testbed::KINDS;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A place on each kind of server, with a session of this many milliseconds.
fn places(ttl_ms: u32) -> impl Iterator<Item = Place> {
    KINDS.iter().map(move |kind| Place::with_store(kind.shared().url_with(&format!("ttl_ms={ttl_ms}"))))
}

/// A place on the first kind of server.
fn place(ttl_ms: u32) -> Place {
    places(ttl_ms).next().unwrap()
}

/// A command that ignores what can be ignored, with a child and a grandchild that write lines as long as they live.
const FAMILY: &str = "trap '' TERM HUP INT
    sh -c 'sh -c \"while echo grandchild >> log; do sleep 0.02; done\" & while echo child >> log; do sleep 0.02; done' &
    echo $$ > pid; while echo alive >> log; do sleep 0.02; done";

/// fencelock with that command, in a group of its own, as a shell with job control starts it.
fn family(place: &Place, options: &[&str]) -> Running {
    let mut command = place.run(&[options, &["job"]].concat(), FAMILY);
    let running = Running::start(command.stderr(Stdio::piped()).process_group(0));
    until("the whole family is at work", || {
        let log = std::fs::read_to_string(place.path("log")).ok()?;
        (log.contains("grandchild") && log.contains("child\n") && log.contains("alive")).then_some(())
    });
    running
}

/// The next command in the queue, which logs its grant and then leaves time for other writers to be seen.
fn rival(place: &Place) -> Running {
    let rival = Running::start(&mut place.run(&["--quiet", "job"], "echo rival >> log; sleep 0.5"));
    place.queued("job", 2);
    rival
}

/// No process wrote a line after the rival's.
fn no_command_ran_during(place: &Place, rival: Running) {
    assert_eq!(rival.code(), 0);
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(log.ends_with("rival\n"), "{}", &log[log.find("rival").unwrap()..]);
}

fn the_guardian_of(running: &Running, place: &Place) -> Pid {
    let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
    until("the guardian is there", || {
        children(running.pid()).into_iter().find(|child| *child != command).map(Pid::from_raw)
    })
}

#[test]
fn a_killed_fencelock_leaves_no_command_running_during_the_next_hold() {
    for place in places(4000) {
        let running = family(&place, &[]);
        let rival = rival(&place);
        running.signal(Signal::SIGKILL);
        no_command_ran_during(&place, rival);
    }
}

#[test]
fn with_close_the_lock_of_a_directory_is_not_free_before_the_command_is_ended() {
    let place = Place::new();
    let running = family(&place, &["--close"]);
    let guardian = the_guardian_of(&running, &place);
    kill(guardian, Signal::SIGSTOP).unwrap();
    stopped(guardian.as_raw());
    running.signal(Signal::SIGKILL);
    until("fencelock is gone", || (!is_alive(running.pid().as_raw())).then_some(()));
    let rival = rival(&place);
    kill(guardian, Signal::SIGCONT).unwrap();
    no_command_ran_during(&place, rival);
}

#[test]
fn a_stopped_fencelock_leaves_no_command_running_during_the_next_hold() {
    for place in places(4000) {
        let running = family(&place, &[]);
        let rival = rival(&place);
        running.signal(Signal::SIGSTOP);
        no_command_ran_during(&place, rival);
        running.signal(Signal::SIGCONT);
        let output = running.end();
        assert_eq!(code(&output), 76);
        assert!(stderr(&output).contains("was lost"), "{}", stderr(&output));
    }
}

#[test]
fn a_fencelock_stopped_with_its_command_leaves_no_command_running_when_both_are_continued() {
    for place in places(4000) {
        let running = family(&place, &[]);
        let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
        let rival = rival(&place);
        running.signal(Signal::SIGSTOP);
        nix::sys::signal::killpg(Pid::from_raw(command), Signal::SIGSTOP).unwrap();
        no_command_ran_during(&place, rival);
        // The command is continued first: the guardian has killed it.
        let _ = nix::sys::signal::killpg(Pid::from_raw(command), Signal::SIGCONT);
        running.signal(Signal::SIGCONT);
        assert_eq!(running.code(), 76);
        let log = std::fs::read_to_string(place.path("log")).unwrap();
        assert!(log.ends_with("rival\n"), "it ran after it was continued");
    }
}

#[test]
fn a_fencelock_that_is_asked_to_stop_stops_its_command_first_and_looks_at_the_lock_before_it_continues() {
    for place in places(4000) {
        let running = family(&place, &[]);
        let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
        running.signal(Signal::SIGTSTP);
        stopped(running.pid().as_raw());
        stopped(command);
        let log = std::fs::read_to_string(place.path("log")).unwrap();
        let rival = rival(&place);
        no_command_ran_during(&place, rival);
        running.signal(Signal::SIGCONT);
        let output = running.end();
        assert_eq!((code(&output), stderr(&output).contains("was lost")), (76, true), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(place.path("log")).unwrap(), format!("{log}rival\n"), "none continued");
    }
}

#[test]
fn a_fencelock_that_was_stopped_for_a_moment_continues_with_its_command() {
    for place in places(60_000) {
        let running = family(&place, &[]);
        let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
        for _ in 0..3 {
            running.signal(Signal::SIGTSTP);
            stopped(running.pid().as_raw());
            stopped(command);
            let length = || std::fs::metadata(place.path("log")).unwrap().len();
            let before = length();
            running.signal(Signal::SIGCONT);
            until("the command continues", || (length() > before).then_some(()));
        }
        assert_eq!(place.contenders("job").len(), 1);
        running.signal(Signal::SIGKILL);
    }
}

#[test]
fn a_killed_guardian_has_a_successor() {
    for place in places(4000) {
        let running = family(&place, &[]);
        let first = the_guardian_of(&running, &place);
        kill(first, Signal::SIGKILL).unwrap();
        let second = until("there is another guardian", || {
            Some(the_guardian_of(&running, &place)).filter(|guardian| *guardian != first)
        });
        assert!(is_alive(second.as_raw()));
        // The successor must have received its orders before the test kills fencelock.
        until("the successor waits for orders", || {
            let wait = std::fs::read_to_string(format!("/proc/{second}/stat")).ok()?;
            wait.rsplit(')').next()?.trim_start().starts_with('S').then_some(())
        });
        let rival = rival(&place);
        running.signal(Signal::SIGKILL);
        no_command_ran_during(&place, rival);
    }
}

#[test]
fn a_guardian_heeds_neither_term_nor_a_closing_terminal() {
    let place = place(60_000);
    let running = family(&place, &[]);
    let guardian = the_guardian_of(&running, &place);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP, Signal::SIGUSR1] {
        kill(guardian, signal).unwrap();
    }
    running.signal(Signal::SIGKILL);
    let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
    until("the command is gone", || (!is_alive(command)).then_some(()));
    until("the guardian is gone", || (!is_alive(guardian.as_raw())).then_some(()));
}

#[test]
fn processes_that_outlive_the_command_outlive_its_guardian() {
    for place in places(60_000) {
        let script =
            "sh -c 'echo $$ > left; exec sleep 300' >/dev/null 2>&1 & while ! test -s left; do sleep 0.02; done";
        assert_eq!(crate::common::ended(&mut place.run(&["--quiet", "job"], script)), (0, String::new()));
        let left: i32 = written(&place.path("left")).trim().parse().unwrap();
        assert!(is_alive(left));
        kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn kills_and_stops_at_any_moment_leave_no_process_that_runs_during_the_next_hold() {
    // The moments are spread over the whole start: the guardian, the command that waits for it, the first renewals.
    for round in 0..16_u32 {
        let kind = KINDS[round as usize % KINDS.len()];
        let place = Place::with_store(kind.shared().url_with("ttl_ms=2500"));
        let mut command = place.run(&["job"], FAMILY);
        let running = Running::start(command.stderr(Stdio::null()).process_group(0));
        std::thread::sleep(std::time::Duration::from_millis(7) * round);
        let signal = if round % 4 < 2 { Signal::SIGKILL } else { Signal::SIGSTOP };
        running.signal(signal);
        let next = Running::start(&mut place.run(&["--quiet", "job"], "echo rival >> log; sleep 0.5"));
        no_command_ran_during(&place, next);
    }
}

#[test]
fn a_command_has_the_descriptors_that_it_would_have_without_us() {
    let place = place(60_000);
    let list = |file: &str| format!("ls /proc/\\$\\$/fd > {file}; true");
    let (without, with) = (list("without"), list("with"));
    let script = format!("exec 7>seven; sh -c \"{without}\"; exec \"$0\" run --quiet job -- sh -c \"{with}\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, crate::common::PROGRAM]);
    shell.env("FENCELOCK_STORE", place.url()).current_dir(place.directory.path());
    assert_eq!(crate::common::ended(shell.stdin(Stdio::null())), (0, String::new()));
    let [with, without] = ["with", "without"].map(|file| std::fs::read_to_string(place.path(file)).unwrap());
    assert!(without.contains("7\n"), "{without}");
    assert_eq!(with, without);
}

#[test]
fn a_command_has_no_signal_blocked() {
    for place in [Place::new(), place(60_000)] {
        let output = crate::common::output(&mut place.run(&["--quiet", "job"], "exec grep SigBlk /proc/self/status"));
        assert_eq!(crate::common::stdout(&output).trim_start_matches("SigBlk:").trim(), "0000000000000000");
    }
}

#[test]
fn helper_processes_obey_the_option_and_not_the_variable_that_it_overrules() {
    let place = Place::new();
    for options in [&["run", "job"][..], &["run", "--close", "job"]] {
        let mut command = place.fencelock(&["--log-level", "warn"]);
        command.args(options).args(["--", "sh", "-c", "exit 5"]).env("FENCELOCK_LOG", "no level");
        assert_eq!(ended(&mut command), (5, String::new()), "{options:?}");
    }
}
