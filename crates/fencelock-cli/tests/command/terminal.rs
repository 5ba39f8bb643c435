//! `fencelock run` in front of a real terminal: keys reach the command, once, and job control works, also without one.

use std::os::unix::process::CommandExt as _;

use crate::common::terminal::{Screen, in_front, shell};
use crate::common::{Place, Running, is_alive, is_stopped, line_with, stopped, until, written};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

#[test]
fn a_command_reads_what_is_typed() {
    let place = Place::new();
    // The command reads at once, perhaps before it has the terminal, and must not stay stopped.
    for round in 0..20 {
        let mut screen = Screen::start(&place.run(&["job"], "read line; echo \"<$line>\"; exit 4"));
        screen.types(&format!("typed {round}\n"));
        screen.shows(&format!("<typed {round}>"));
        assert_eq!(screen.code(), 4);
    }
}

#[test]
fn interrupt_reaches_the_command_once() {
    let place = Place::new();
    let script = "count=0; trap 'count=$((count+1)); echo interrupted' INT; trap 'echo times $count; exit 7' QUIT
                  echo ready; while :; do sleep 0.02; done";
    let mut screen = Screen::start(&place.run(&["job"], script));
    screen.shows("ready");
    screen.types("\u{3}");
    screen.shows("interrupted");
    screen.types("\u{1c}");
    screen.shows("times 1");
    assert_eq!(screen.code(), 7);
}

#[test]
fn a_command_that_dies_of_the_keyboard_exits_with_its_signal() {
    let place = Place::new();
    let mut screen = Screen::start(&place.run(&["job"], "echo ready; exec cat"));
    screen.shows("ready");
    screen.types("\u{3}");
    assert_eq!(screen.code(), 130);
    assert_eq!(place.contenders("job").len(), 0);
}

#[test]
fn interrupt_ends_the_wait_for_a_lock() {
    let place = Place::new();
    let _holder = place.holder("job");
    let mut screen = Screen::start(&place.run(&["job"], "true"));
    place.queued("job", 2);
    screen.types("\u{3}");
    assert_eq!(screen.code(), 130);
    assert_eq!(place.contenders("job").len(), 1);
}

#[test]
fn a_wait_that_the_keyboard_suspends_leaves_the_queue_and_joins_it_again_in_front() {
    let place = Place::new();
    let mut holder = place.holder("job");
    let mut screen = shell(&place);
    screen.types("\"$FL\" run --quiet job -- echo 'it is' done\n");
    for _ in 0..2 {
        place.queued("job", 2);
        screen.types("\u{1a}");
        screen.shows("here> ");
        place.queued("job", 1);
        screen.types("fg\n");
    }
    place.queued("job", 2);
    drop(holder.0.as_mut().unwrap().stdin.take());
    screen.shows("it is done");
    screen.shows("here> ");
}

#[test]
fn suspending_stops_both_and_the_shell_can_bring_them_back() {
    let place = Place::new();
    let mut screen = shell(&place);
    screen.types("\"$FL\" run job -- sh -c 'echo $PPID > fencelock; echo $$ > command; read line; echo \"<$line>\"'\n");
    let pid = |file: &str| written(&place.path(file)).trim().parse().unwrap();
    let (fencelock, command): (i32, i32) = (pid("fencelock"), pid("command"));
    for _ in 0..3 {
        in_front(command);
        screen.types("\u{1a}");
        screen.shows("here> ");
        stopped(fencelock);
        stopped(command);
        assert_eq!(place.contenders("job").len(), 1);
        screen.types("fg\n");
    }
    in_front(command);
    screen.types("typed\n");
    screen.shows("<typed>");
    screen.shows("here> ");
    screen.types("echo code=$?\n");
    screen.shows("code=0");
    assert!(!is_alive(command) && !is_alive(fencelock));
}

#[test]
fn a_job_in_the_background_stops_when_it_reads_and_continues_in_the_foreground() {
    let place = Place::new();
    let mut screen = shell(&place);
    screen.types("\"$FL\" run job -- sh -c 'echo $$ > command; read line; echo \"<$line>\"' &\n");
    let command: i32 = written(&place.path("command")).trim().parse().unwrap();
    // The shell (`-b`) prints this once it has seen the stop. Before that, its `fg` would continue no process.
    screen.shows("Stopped");
    stopped(command);
    screen.types("fg\n");
    in_front(command);
    screen.types("typed\n");
    screen.shows("<typed>");
    screen.shows("here> ");
}

#[test]
fn a_stop_that_no_process_could_continue_is_undone() {
    let place = Place::new();
    // The terminal's only program: there is no shell that could run `fg`.
    let mut screen =
        Screen::start(&place.run(&["job"], "echo $$ > command; while read line; do echo \"<$line>\"; done"));
    let command: i32 = written(&place.path("command")).trim().parse().unwrap();
    in_front(command);
    screen.types("\u{1a}");
    screen.types("typed\n");
    screen.shows("<typed>");
    assert!(is_alive(screen.pid()));
}

#[test]
fn a_stop_that_is_taken_back_while_the_command_is_stopped_stops_no_process() {
    let place = Place::new();
    // The script ignores the request to stop, which leaves time to take the request back. The script starts no child that would
    // stop, and ends with the test.
    let script = "trap 'echo asked > asked' TSTP; trap 'echo goes on > continued' CONT; trap 'exit 3' USR1
        echo > ready; while :; do :; done";
    let running = Running::start(place.run(&["--close", "job"], script).process_group(0));
    written(&place.path("ready"));
    running.signal(Signal::SIGTSTP);
    // On a slow machine it is stopped before it does anything, and fencelock with it.
    until("the command is asked to stop", || {
        (place.path("asked").exists() || is_stopped(running.pid().as_raw())).then_some(())
    });
    running.signal(Signal::SIGCONT);
    written(&place.path("continued"));
    running.signal(Signal::SIGUSR1);
    assert_eq!(running.code(), 3);
}

#[test]
fn a_command_stopped_from_outside_is_continued_with_fencelock_however_often_that_was_suspended() {
    let place = Place::new();
    let script = "trap 'exit 3' USR1; echo $$ > pid; while echo x >> log; do sleep 0.02; done";
    let running = Running::start(place.run(&["job"], script).process_group(0));
    let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
    let length = || std::fs::metadata(place.path("log")).map_or(0, |log| log.len());
    for round in 0..6 {
        if round % 2 == 0 {
            running.signal(Signal::SIGTSTP);
            stopped(running.pid().as_raw());
        } else {
            killpg(Pid::from_raw(command), Signal::SIGSTOP).unwrap();
        }
        stopped(command);
        let before = length();
        running.signal(Signal::SIGCONT);
        until("the command continues", || (length() > before).then_some(()));
    }
    running.signal(Signal::SIGUSR1);
    assert_eq!(running.code(), 3);
}

#[test]
fn a_command_stopped_from_outside_is_reported_once_and_keeps_the_lock() {
    let place = Place::new();
    // The script starts no child: a shell that is stopped within vfork(2) stops, and is reported as stopped, only after
    // the vfork.
    let script = "trap 'exit 3' USR1; echo $$ > pid; while echo x >> log; do :; done";
    let told = place.path("told");
    let running = Running::start(place.run(&["job"], script).stderr(std::fs::File::create(&told).unwrap()));
    let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
    let length = || std::fs::metadata(place.path("log")).map_or(0, |log| log.len());
    for round in 0..3 {
        killpg(Pid::from_raw(command), Signal::SIGSTOP).unwrap();
        stopped(command);
        if round == 0 {
            line_with(&told, "fencelock: the command was stopped by SIGSTOP, and the lock job is held meanwhile\n");
        }
        assert_eq!(place.contenders("job")[0]["state"], "holder");
        let before = length();
        killpg(Pid::from_raw(command), Signal::SIGCONT).unwrap();
        until("the command continues", || (length() > before).then_some(()));
    }
    running.signal(Signal::SIGUSR1);
    assert_eq!(running.code(), 3);
    let told = std::fs::read_to_string(&told).unwrap();
    assert_eq!(told.matches("fencelock: the command was stopped").count(), 1, "{told}");
}
