//! `fencelock run` as the first process of a container, and where there is no `/proc`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Command, Stdio};

use crate::common::terminal::Screen;
use crate::common::{PROGRAM, Place, Running, code, ended, output, stdout, written};

/// A place on a server, whose lock can lapse, and `unshare` with `options`, as the root of a user namespace.
fn unshared(options: &[&str]) -> (Place, Command) {
    let place = Place::with_store(format!("{}?ttl_ms=60000", fencelock_testbed::redis::shared().url()));
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).args(options);
    command.env("FENCELOCK_STORE", place.url()).current_dir(place.directory.path());
    (place, command)
}

#[test]
fn the_first_process_of_a_container_reaps_what_is_left_to_it() {
    let (_place, mut command) = unshared(&["--pid", "--fork", "--mount-proc"]);
    let script = "sh -c 'sleep 0.1 & echo $! > orphan'; while test -e /proc/$(cat orphan); do sleep 0.02; done; exit 5";
    assert_eq!(ended(command.args([PROGRAM, "run", "--quiet", "job", "--", "sh", "-c", script])), (5, String::new()));
}

#[test]
fn the_first_process_of_a_container_ends_as_a_shell_would_say_it() {
    let (_place, mut command) = unshared(&["--pid", "--fork", "--mount-proc"]);
    assert_eq!(
        ended(command.args([PROGRAM, "run", "--quiet", "job", "--", "sh", "-c", "kill -INT $$"])),
        (130, String::new())
    );
}

#[test]
fn without_proc_commands_run_as_elsewhere() {
    let (place, mut command) = unshared(&["--mount"]);
    std::fs::create_dir(place.path("bin")).unwrap();
    std::os::unix::fs::symlink(PROGRAM, place.path("bin/fencelock")).unwrap();
    let script = "mount -t tmpfs none /proc && \"$0\" run --quiet job -- sh -c 'exit 5'
                  test $? = 5 && PATH=$PWD/bin:$PATH && fencelock run --quiet job -- sh -c 'exit 6'";
    assert_eq!(ended(command.args(["sh", "-c", script, PROGRAM])), (6, String::new()));
}

#[test]
fn a_proc_of_other_processes_is_not_asked_about_the_command() {
    let (_place, mut command) = unshared(&["--pid", "--fork"]);
    let script = "\"$0\" run --quiet job -- sh -c 'read line; echo \"<$line>\"; exit 5'; exit $?";
    let mut screen = Screen::start(command.args(["sh", "-c", script, PROGRAM]));
    screen.types("typed\n");
    screen.shows("<typed>");
    assert_eq!(screen.code(), 5);
}

#[test]
fn the_lock_of_another_container_with_the_same_host_name_is_waited_for_and_left_alone() {
    let (place, mut first) = unshared(&["--pid", "--fork", "--mount-proc"]);
    let acquire = "\"$0\" acquire --quiet job --pid $$ > token || exit";
    let script = format!("{acquire}; echo > held; while ! test -e go; do sleep 0.02; done; exit 5");
    // No lock may be kept for the first process of a container.
    let within = |command: &mut Command, script: &str| {
        command.args(["sh", "-c", "sh -c \"$1\" \"$0\"; exit $?", PROGRAM, script]);
        Running::start(command.stderr(Stdio::piped()))
    };
    let holds = within(&mut first, &script);
    written(&place.path("held"));
    let (_, mut second) = unshared(&["--pid", "--fork", "--mount-proc"]);
    second.env("FENCELOCK_STORE", place.url());
    let script = "\"$0\" acquire --try --quiet job --pid $$; echo $? > tried
        \"$0\" acquire --quiet job --pid $$ & \"$0\" release job; echo $? > released; wait $!";
    let waits = within(second.current_dir(place.directory.path()), script);
    assert_eq!(written(&place.path("tried")), "75\n");
    assert_eq!(written(&place.path("released")), "1\n");
    place.queued("job", 2);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!((holds.code(), waits.code()), (5, 0));
}

/// The same as in a container that mounts the host's directory read-only.
#[test]
fn a_directory_that_is_mounted_read_only_is_looked_at_and_takes_no_locks() {
    let (place, mut command) = unshared(&["--mount"]);
    let store = Place::with_store(format!("file://{}", place.path("store").display()));
    let _holder = store.holder("job");
    let script = "mount --bind store store && mount -o remount,ro,bind store && for verb in ls 'show job' 'wait job --timeout 0' 'run job --try -- true'
                  do \"$0\" $verb > out 2> err; echo $? $(cat out err); done";
    command.env("FENCELOCK_STORE", store.url());
    let told = stdout(&output(command.args(["sh", "-c", script, PROGRAM])));
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].starts_with("0 ") && lines[1].starts_with("0 ") && lines[2].starts_with("75 "), "{told}");
    assert!(lines[1].contains("to test") && lines[3].starts_with("77 "), "{told}");
}

/// Needs root, which starts the look as a user that sees only its own processes.
#[test]
fn a_holder_that_proc_hides_from_others_is_not_said_to_be_gone() {
    let place = Place::new();
    fs::create_dir(place.path("store")).unwrap();
    fs::copy(PROGRAM, place.path("program")).unwrap();
    for (name, mode) in [("", 0o755), ("store", 0o775), ("program", 0o755)] {
        fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    }
    chown(place.path("store"), None, Some(65534)).unwrap();
    let _holder = place.holder("job");
    // A new mount: the options of an existing one would change for all its copies, outside as well.
    let script = "mount -t proc -o hidepid=2 proc /proc && nobody='setpriv --reuid=65534 --regid=65534 --clear-groups'
                  ! $nobody ls -d /proc/$PPID >/dev/null 2>&1 && exec $nobody ./program show job";
    let mut hidden = Command::new("unshare");
    hidden
        .args(["--mount", "sh", "-c", script])
        .env("FENCELOCK_STORE", place.url())
        .current_dir(place.directory.path());
    let shown = output(&mut hidden);
    let told = stdout(&shown);
    assert_eq!((code(&shown), told.contains("holder"), told.contains("no process")), (0, true, false), "{told}");
}
