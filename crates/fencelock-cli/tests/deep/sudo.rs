//! `fencelock run … sudo …`: a command that becomes another user and asks for a password at the terminal.
//!
//! The user exists for the processes of a test only: in a mount namespace its files cover the machine's. That needs root.

use std::fs::{Permissions, copy, read_to_string, set_permissions, write};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;

use crate::common::terminal::Screen;
use crate::common::{Place, is_alive, until, written};
use fencelock_testbed::SUDO;

const USER: u32 = 64_321;
const PASSWORD: &str = "pass word";
/// The password's hash, by SHA-512 crypt.
const HASH: &str =
    "$6$fencelock$/NfJlC.81lnfK9uR1376X3D5qfp0dOrNFdFKOU9lyJgx6F.qK43tT7T8VKQtdWKs6as8YVnZbqEHqpF14Cjsf0";

/// A place that belongs to the user, with a script that enters it as that user and then runs the command of its
/// arguments.
fn place() -> Place {
    SUDO.require();
    assert!(nix::unistd::geteuid().is_root(), "a user for one test needs root: run these tests as root");
    let place = Place::new();
    let mode = |name: &str, mode| set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    copy(crate::common::PROGRAM, place.path("fencelock")).unwrap();
    let added = |file: &str, line: &str| format!("{}{line}\n", read_to_string(file).unwrap());
    write(place.path("passwd"), added("/etc/passwd", &format!("fltest:x:{USER}:{USER}::/:/bin/sh"))).unwrap();
    write(place.path("shadow"), added("/etc/shadow", &format!("fltest:{HASH}:20000:0:99999:7:::"))).unwrap();
    write(place.path("sudoers"), "Defaults !lecture\nfltest ALL=(ALL) ALL\n").unwrap();
    mode("shadow", 0o600);
    mode("sudoers", 0o440);
    let mounts = ["passwd", "shadow", "sudoers"].map(|file| format!("mount --bind {file} /etc/{file}\n")).concat();
    let enter = format!("set -e\n{mounts}exec setpriv --reuid {USER} --regid {USER} --clear-groups \"$@\"\n");
    write(place.path("enter"), enter).unwrap();
    chown(place.directory.path(), Some(USER), Some(USER)).unwrap();
    mode(".", 0o755);
    place
}

/// A script of the user's, in front of a terminal.
fn script(place: &Place, script: &str) -> Screen {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "enter", "bash", "-c", script]);
    unshare.env("FENCELOCK_STORE", place.url()).env("HOME", "/").current_dir(place.directory.path());
    Screen::start(&unshare)
}

fn answer(screen: &mut Screen) {
    screen.shows("password for fltest:");
    screen.asks_for_a_secret();
    screen.types(&format!("{PASSWORD}\n"));
}

#[test]
fn a_command_that_asks_for_a_password_to_become_root_runs_as_root_and_its_code_is_ours() {
    let place = place();
    let mut screen = script(&place, "./fencelock run job -- sudo -k sh -c 'id -u > who; exit 7'");
    answer(&mut screen);
    assert_eq!(screen.code(), 7);
    assert_eq!(written(&place.path("who")), "0\n");
}

#[test]
fn interrupt_ends_a_command_that_became_root_and_the_loop_that_calls_us() {
    let place = place();
    let lock = "./fencelock run job -- sudo -k sh -c 'echo $$ > command; exec sleep 600'";
    let mut screen = script(&place, &format!("for round in 1 2 3; do {lock}; done; echo survived > survived"));
    answer(&mut screen);
    let command: i32 = written(&place.path("command")).trim().parse().unwrap();
    screen.types("\u{3}");
    until("the command is ended", || (!is_alive(command)).then_some(()));
    assert_eq!(screen.code(), 130);
    assert!(!place.path("survived").exists());
}
