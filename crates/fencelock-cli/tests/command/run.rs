//! `fencelock run`: the command's exit code, exactly, and a lock that is held as long as the command runs.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::process::Stdio;

use crate::common::{
    PROGRAM, Place, Running, children, code, ended, is_alive, line_with, output, refused, stderr, stdout, until,
    written,
};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn the_exit_code_is_the_commands_own() {
    let place = Place::new();
    for (script, expected) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
    {
        assert_eq!(ended(&mut place.run(&["job"], script)), (expected, String::new()), "{script}");
    }
}

#[test]
fn the_command_gets_name_and_token_and_tokens_rise() {
    let place = Place::new();
    let told = || {
        let output = output(&mut place.run(&["job/x"], "echo $FENCELOCK_NAME; echo $FENCELOCK_TOKEN"));
        let text = stdout(&output);
        let (name, token) = text.trim_end().split_once('\n').unwrap();
        assert_eq!(name, "job/x");
        token.parse::<i64>().unwrap()
    };
    let tokens = [told(), told(), told()];
    assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
}

#[test]
fn a_command_that_cannot_run_gives_the_lock_back() {
    let place = Place::new();
    let file = place.path("plain");
    std::fs::write(&file, "x").unwrap();
    let not_executable = ended(&mut place.fencelock(&["run", "job", "--", file.to_str().unwrap()]));
    assert_eq!(not_executable.0, 126);
    assert!(not_executable.1.contains("plain"), "{}", not_executable.1);
    let not_found = ended(&mut place.fencelock(&["run", "job", "--", "no-such-command"]));
    assert_eq!(not_found.0, 127);
    assert!(not_found.1.contains("no-such-command"), "{}", not_found.1);
    assert_eq!(ended(&mut place.run(&["--try", "job"], "true")).0, 0);
}

#[test]
fn wrong_usage_exits_with_64_and_names_what_is_wrong() {
    let place = Place::new();
    for (options, said) in [
        (&["a/../b"][..], "a/../b"),
        (&[""], "the name is empty"),
        (&["--max-hold", "0s", "a"], "longer than nothing"),
        (&["--wait", "-3s", "a"], "negative"),
        (&["--wait", "5000000d", "a"], "too long"),
        (&["--grace", "soon", "a"], "--grace"),
        (&["--try", "--wait", "1s", "a"], "--wait"),
        (&["-E", "300", "a"], "300"),
        (&["--purpose", "a\tb", "a"], "control characters"),
        (&["--no-such", "a"], "--no-such"),
    ] {
        let (code, text) = ended(&mut place.run(options, "true"));
        assert_eq!(code, 64, "{text}");
        assert!(text.starts_with("fencelock: ") && text.contains(said), "{options:?}: {text}");
    }
    assert_eq!(ended(&mut place.fencelock(&["run", "a"])).0, 64);
    let mut not_utf8 = place.fencelock(&["run"]);
    not_utf8.arg(OsString::from_vec(b"a\xffb".to_vec())).args(["--", "true"]);
    let (code, text) = ended(&mut not_utf8);
    assert_eq!(code, 64);
    assert!(text.contains("UTF-8"), "{text}");
    assert_eq!(ended(&mut place.fencelock(&["run", "--help"])), (0, String::new()));
    assert_eq!(ended(&mut place.fencelock(&["--version"])), (0, String::new()));
}

#[test]
fn a_busy_lock_is_refused_with_its_holder_named() {
    Place::new().refuses_a_busy_lock_with_its_holder_named();
}

#[test]
fn stdin_is_passed_on_and_the_lock_is_free_afterwards() {
    let place = Place::new();
    let mut copy =
        Running::start(place.fencelock(&["run", "job", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()));
    copy.0.as_mut().unwrap().stdin.take().unwrap().write_all(b"to be passed on").unwrap();
    let output = copy.end();
    assert_eq!((code(&output), stdout(&output).as_str()), (0, "to be passed on"));
    assert_eq!(place.contenders("job").len(), 0);
}

#[test]
fn waiters_run_one_after_the_other_in_the_order_of_their_arrival() {
    let place = Place::new();
    let mut holder = place.holder("job");
    let mut waiters = Vec::new();
    for number in 0..4 {
        waiters.push(Running::start(&mut place.run(&["--quiet", "job"], &format!("echo {number} >> order"))));
        place.queued("job", number + 2);
    }
    drop(holder.0.as_mut().unwrap().stdin.take());
    assert!(waiters.into_iter().all(|waiter| waiter.code() == 0));
    assert_eq!(std::fs::read_to_string(place.path("order")).unwrap(), "0\n1\n2\n3\n");
}

#[test]
fn signals_are_relayed_to_the_command() {
    let place = Place::new();
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
    ] {
        let ready = place.path(name);
        let script = format!("trap 'echo got {name}; exit 5' {name}; echo > {name}; while :; do sleep 0.02; done");
        let running = Running::start(place.run(&["job"], &script).stdout(Stdio::piped()));
        written(&ready);
        running.signal(signal);
        let output = running.end();
        assert_eq!((code(&output), stdout(&output)), (5, format!("got {name}\n")));
    }
}

#[test]
fn signals_that_were_ignored_stay_ignored() {
    let place = Place::new();
    let script =
        "trap '' HUP; exec \"$0\" run job -- sh -c 'grep SigIgn /proc/self/status > ignored; echo > ready; cat'";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).arg(PROGRAM).env("FENCELOCK_STORE", place.url()).current_dir(place.directory.path());
    let mut running = Running::start(shell.stdin(Stdio::piped()));
    written(&place.path("ready"));
    running.signal(Signal::SIGHUP);
    assert_eq!(place.contenders("job").len(), 1);
    drop(running.0.as_mut().unwrap().stdin.take());
    assert_eq!(running.code(), 0);
    let mask = std::fs::read_to_string(place.path("ignored")).unwrap();
    assert_eq!(u64::from_str_radix(mask.trim().rsplit('\t').next().unwrap(), 16).unwrap() & 1, 1, "{mask}");
}

#[test]
fn an_interrupted_wait_leaves_nothing_behind() {
    let place = Place::new();
    let _holder = place.holder("job");
    for (signal, expected) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let waiter = Running::start(&mut place.run(&["--quiet", "job"], "echo ran > ran"));
        place.queued("job", 2);
        waiter.signal(signal);
        assert_eq!(waiter.code(), expected);
        assert_eq!(place.contenders("job").len(), 1);
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn a_waiter_behind_a_suspended_one_gets_the_lock() {
    Place::new().passes_by_a_waiter_that_is_suspended();
}

#[test]
fn a_long_wait_names_the_holder_once() {
    let place = Place::new();
    let mut holder = place.holder("job");
    let waiter = Running::start(place.run(&["job"], "true").stderr(Stdio::piped()));
    let quiet = Running::start(place.run(&["--quiet", "job"], "true").stderr(Stdio::piped()));
    let told = place.path("told");
    let mut waiter = waiter;
    let mut stderr_of_waiter = waiter.0.as_mut().unwrap().stderr.take().unwrap();
    let path = told.clone();
    let reader =
        std::thread::spawn(move || std::io::copy(&mut stderr_of_waiter, &mut std::fs::File::create(path).unwrap()));
    let text = line_with(&told, "waiting for job");
    assert!(text.contains(&format!("pid {}", holder.pid())), "{text}");
    drop(holder.0.as_mut().unwrap().stdin.take());
    assert_eq!(waiter.code(), 0);
    reader.join().unwrap().unwrap();
    assert_eq!(std::fs::read_to_string(&told).unwrap().matches("waiting for").count(), 1);
    assert_eq!(stderr(&quiet.end()), "");
}

#[test]
fn a_command_that_ignores_term_is_killed_with_its_whole_group() {
    let place = Place::new();
    let script = "trap '' TERM; sh -c 'while :; do sleep 0.02; done' & echo $! > child; wait";
    let (code, text) = ended(&mut place.run(&["--max-hold", "10s", "--grace", "300ms", "job"], script));
    assert_eq!(code, 76);
    assert!(text.contains("--max-hold"), "{text}");
    let child: i32 = written(&place.path("child")).trim().parse().unwrap();
    until("the grandchild is gone", || (!is_alive(child)).then_some(()));
    assert_eq!(place.contenders("job").len(), 0);
}

#[test]
fn a_command_whose_lock_is_lost_is_killed_unless_an_option_gives_it_time_to_end() {
    for (options, told) in [(&[][..], false), (&["--grace-after-loss", "60s"], true)] {
        let place = Place::new();
        let script = "trap 'echo told >> told; exit 0' TERM; echo > ready; while :; do sleep 0.02; done";
        let running = Running::start(place.run(&[options, &["job"]].concat(), script).stderr(Stdio::piped()));
        written(&place.path("ready"));
        remove_tickets(&place.path("store"), "job.");
        let output = running.end();
        assert_eq!(code(&output), 76);
        assert!(stderr(&output).contains("lost"), "{}", stderr(&output));
        assert_eq!(place.path("told").exists(), told, "{options:?}");
    }
}

#[test]
fn descriptors_that_systemd_passes_are_the_commands() {
    let place = Place::new();
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" run job -- sh -c 'echo $LISTEN_FDS; test $LISTEN_PID = $$'";
    let mut service = std::process::Command::new("sh");
    service.args(["-c", script]).arg(PROGRAM).env("FENCELOCK_STORE", place.url());
    let passed = output(&mut service);
    assert_eq!((code(&passed), stdout(&passed).as_str()), (0, "1\n"));
    let mut others = place.run(&["job"], "test $LISTEN_PID = 1");
    assert_eq!(ended(others.env("LISTEN_PID", "1")).0, 0, "another process's stay so");
}

#[test]
fn a_lock_that_is_held_at_least_for_a_while_outlives_its_command() {
    let place = Place::new();
    let said = place.path("said");
    let start = || {
        let mut command = place.run(&["--hold-at-least", "1h", "job"], "exit 3");
        let running = Running::start(command.stderr(std::fs::File::create(&said).unwrap()));
        line_with(&said, "the command has ended, and --hold-at-least holds the lock job on");
        running
    };
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let running = start();
        assert_eq!(ended(&mut place.run(&["--try", "--quiet", "job"], "true")).0, 75);
        running.signal(signal);
        assert_eq!(running.code(), 3);
        assert_eq!(ended(&mut place.run(&["--try", "job"], "true")).0, 0);
    }
    let running = start();
    remove_tickets(&place.path("store"), "job.");
    assert_eq!(running.code(), 3, "it ended while it was held");
    let said = std::fs::read_to_string(said).unwrap();
    assert!(said.contains("before --hold-at-least was over"), "{said}");
    assert_eq!(ended(&mut place.run(&["--hold-at-least", "1ms", "job"], "exit 4")).0, 4);
}

#[test]
fn a_signal_that_ends_the_command_ends_the_least_time_of_the_lock() {
    let place = Place::new();
    let script = "trap 'exit 4' TERM; echo > ready; while :; do sleep 0.02; done";
    let running = Running::start(&mut place.run(&["--hold-at-least", "1h", "job"], script));
    written(&place.path("ready"));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.code(), 4);
    let mut nothing = place.fencelock(&["run", "--hold-at-least", "1h", "job", "--", "no-such-command"]);
    assert_eq!(ended(&mut nothing).0, 127);
}

/// The writing end of a pipe that takes no more, and the reading end, which keeps it open.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = usize::try_from(fcntl(&writer, FcntlArg::F_GETPIPE_SZ).unwrap()).unwrap();
    writer.write_all(&vec![b'.'; size]).unwrap();
    (reader, writer)
}

#[test]
fn a_command_whose_lock_is_lost_is_killed_though_no_process_reads_stderr() {
    let place = Place::new();
    let (_reader, full) = full_pipe();
    let script = "echo $$ > pid; while :; do sleep 0.02; done";
    let running = Running::start(place.run(&["job"], script).stderr(full));
    let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
    remove_tickets(&place.path("store"), "job.");
    until("the command is killed", || (!is_alive(command)).then_some(()));
    assert_eq!(running.code(), 76);
}

#[test]
fn the_rest_of_a_command_that_was_asked_to_end_is_killed_when_the_lock_is_lost() {
    let place = Place::new();
    let script = "sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 0.02; done' &
        trap 'echo gone > gone; exit 0' TERM; while :; do sleep 0.02; done";
    let running = Running::start(&mut place.run(&["--max-hold", "10s", "--grace", "1h", "job"], script));
    let child: i32 = written(&place.path("child")).trim().parse().unwrap();
    written(&place.path("gone"));
    assert!(is_alive(child));
    remove_tickets(&place.path("store"), "job.");
    until("who was left is killed", || (!is_alive(child)).then_some(()));
    assert_eq!(running.code(), 76);
}

/// Removes every file under `directory` whose name starts with `start`, as a cleaner of directories does.
fn remove_tickets(directory: &std::path::Path, start: &str) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            remove_tickets(&entry.path(), start);
        } else if entry.file_name().to_str().unwrap().starts_with(start) {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn a_killed_fencelock_leaves_the_lock_to_its_command() {
    let place = Place::new();
    let mut running = Running::start(place.run(&["job"], "echo > ready; cat").stdin(Stdio::piped()));
    written(&place.path("ready"));
    let stdin = running.0.as_mut().unwrap().stdin.take();
    running.signal(Signal::SIGKILL);
    assert_eq!(running.0.take().unwrap().wait().unwrap().code(), None);
    assert_eq!(ended(&mut place.run(&["--try", "--quiet", "job"], "true")).0, 75);
    drop(stdin);
    assert_eq!(ended(&mut place.run(&["--wait", "180s", "--quiet", "job"], "true")).0, 0);
}

#[test]
fn with_close_the_lock_and_the_command_go_with_fencelock() {
    let place = Place::new();
    let mut running = Running::start(place.run(&["--close", "job"], "echo $$ > pid; cat").stdin(Stdio::piped()));
    let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
    let _stdin = running.0.as_mut().unwrap().stdin.take();
    running.signal(Signal::SIGKILL);
    assert_eq!(running.0.take().unwrap().wait().unwrap().code(), None);
    assert_eq!(ended(&mut place.run(&["--wait", "180s", "--quiet", "job"], "true")).0, 0);
    until("the command is gone", || (!is_alive(command)).then_some(()));
}

#[test]
fn processes_that_outlive_the_command_do_not_keep_the_lock() {
    let place = Place::new();
    let (code, _) = ended(&mut place.run(
        &["job"],
        "sh -c 'echo $$ > left; exec sleep 300' >/dev/null 2>&1 & while ! test -s left; do sleep 0.02; done",
    ));
    assert_eq!(code, 0);
    let left: i32 = written(&place.path("left")).trim().parse().unwrap();
    assert!(is_alive(left));
    assert_eq!(ended(&mut place.run(&["--try", "job"], "true")).0, 0);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(left), Signal::SIGKILL).unwrap();
}

#[test]
fn a_store_that_is_removed_ends_the_command_and_every_wait() {
    let place = Place::new();
    let holder = Running::start(place.run(&["job"], "exec cat").stdin(Stdio::piped()));
    place.queued("job", 1);
    let waiter = Running::start(place.run(&["--quiet", "job"], "true").stderr(Stdio::piped()));
    place.queued("job", 2);
    // A client may create a file in the directory at this moment: then the removal is repeated.
    until("the store is gone", || std::fs::remove_dir_all(place.path("store")).ok());
    let waited = waiter.end();
    // The waiter gets the lock in a new store; or it was granted in the half-removed store, and lost that grant; or it opened the
    // half-removed store, and prints that.
    let said = stderr(&waited);
    let half_gone = code(&waited) == 65 && said.contains("a part of the lock directory was removed");
    assert!([0, 76].contains(&code(&waited)) || half_gone, "{} {said}", code(&waited));
    assert_eq!(holder.code(), 76);
}

#[test]
fn readers_run_together_and_a_writer_runs_alone() {
    let place = Place::new();
    let start = |options: &[&str]| Running::start(place.run(options, "cat").stdin(Stdio::piped()));
    let reader = start(&["--shared", "page"]);
    place.queued("page", 1);
    assert_eq!(ended(&mut place.run(&["--try", "--shared", "page"], "true")).0, 0);
    refused(&mut place.run(&["--try", "--exclusive", "page"], "true"), &format!("pid {}", reader.pid()));
    let (conflict, said) = ended(&mut place.run(&["page"], "true"));
    assert_eq!(conflict, 65);
    assert!(said.contains("reader") && said.contains("mutex"), "{said}");
}

#[test]
fn as_many_run_as_there_are_permits() {
    let place = Place::new();
    let start = |options: &[&str]| Running::start(place.run(options, "cat").stdin(Stdio::piped()));
    let _seats = [start(&["--permits", "1/3", "seats"]), start(&["--permits", "1/3", "seats"])];
    place.queued("seats", 2);
    assert_eq!(ended(&mut place.run(&["--try", "--permits", "1/3", "seats"], "true")).0, 0);
    assert_eq!(ended(&mut place.run(&["--try", "--permits", "2/3", "seats"], "true")).0, 75);
    let (code, said) = ended(&mut place.run(&["--wait", "1h", "--permits", "1/4", "seats"], "true"));
    assert_eq!((code, said.contains("to change the number of permits")), (65, true), "{said}");
    for options in [["--permits", "4/3"], ["--permits", "0/3"], ["--permits", "1/0"], ["--permits", "many"]] {
        let (code, said) = ended(place.run(&options, "true").arg("seats"));
        assert_eq!(code, 64);
        assert!(said.contains("K/N"), "{said}");
    }
    assert_eq!(ended(&mut place.run(&["--permits", "1/3", "--shared", "seats"], "true")).0, 64);
}

#[test]
fn a_wait_of_zero_is_a_try_and_the_error_for_a_number_without_a_unit_lists_the_units() {
    let place = Place::new();
    let _holder = place.holder("job");
    assert_eq!(ended(&mut place.run(&["--wait", "0", "--quiet", "job"], "true")), (75, String::new()));
    assert_eq!(ended(&mut place.run(&["--wait", "0", "free"], "true")), (0, String::new()));
    let (code, said) = ended(&mut place.run(&["--wait", "30", "job"], "true"));
    assert_eq!((code, said.contains("30s are seconds")), (64, true), "{said}");
}

#[test]
fn the_error_for_a_line_of_the_shell_given_as_a_program_says_how_to_run_it() {
    let place = Place::new();
    let (code, said) = ended(&mut place.fencelock(&["run", "job", "--", "echo hi; ls"]));
    assert_eq!((code, said.contains("\"echo hi; ls\"") && said.contains("sh -c")), (127, true), "{said}");
    let (_, said) = ended(&mut place.fencelock(&["run", "job", "--", "no-such-command"]));
    assert!(!said.contains("sh -c"), "{said}");
}

#[test]
fn every_exit_code_of_its_own_is_in_the_help() {
    let help = stdout(&output(crate::common::binary().args(["run", "--help"])));
    for code in ["64", "65", "69", "70", "71", "73", "74", "75", "76", "77", "78", "126", "127"] {
        assert!(help.contains(&format!("  {code}  ")), "{code}: {help}");
    }
}

#[test]
fn a_signal_to_all_processes_of_a_run_releases_nothing_while_the_command_works_on() {
    let place = Place::with_store(fencelock_testbed::redis::shared().url_with("ttl_ms=60000"));
    let script = "trap 'echo > trapped; while ! test -e go; do sleep 0.02; done; exit 7' TERM INT HUP QUIT
        echo > ready; while :; do sleep 0.02; done";
    for verb in [&["run", "--quiet"][..], &["elect", "--quiet"]] {
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
            let whole = [verb, &["job", "--", "sh", "-c", script]].concat();
            let run = Running::start(&mut place.fencelock(&whole));
            written(&place.path("ready"));
            // The guardian and the command.
            let started = until("both are there", || Some(children(run.pid())).filter(|all| all.len() == 2));
            started
                .into_iter()
                .map(Pid::from_raw)
                .chain([run.pid()])
                .for_each(|process| kill(process, signal).unwrap());
            written(&place.path("trapped"));
            assert_eq!(ended(&mut place.run(&["--quiet", "--try", "job"], "true")).0, 75, "{verb:?} {signal}");
            std::fs::write(place.path("go"), "").unwrap();
            assert_eq!(run.code(), 7, "{verb:?} {signal}");
            for file in ["ready", "trapped", "go"] {
                std::fs::remove_file(place.path(file)).unwrap();
            }
        }
    }
}

#[test]
fn a_command_without_two_dashes_is_refused_with_the_line_that_has_them() {
    let place = Place::new();
    for (given, told) in [
        (&["run", "x", "true", "now"][..], "fencelock run NAME -- COMMAND"),
        (&["elect", "x", "true"], "fencelock elect NAME -- COMMAND"),
        (&["run", "x", "ls", "-l"], "fencelock run NAME -- COMMAND"),
        (&["run", "-E", "0", "--store", "redis://:secret@h", "x", "ls", "-l"], "fencelock run NAME -- COMMAND"),
        (&["run", "--wiat", "3s", "x", "true"], "'--wait'"),
        (&["brake", "x"], "'break'"),
    ] {
        let (code, said) = ended(&mut place.fencelock(given));
        assert!(code == 64 && said.contains(told), "{given:?}: {code} {said}");
        assert!(!said.contains("'-- -l'") && !said.contains("secret"), "{given:?}: {said}");
    }
}
