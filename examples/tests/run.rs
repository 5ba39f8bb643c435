//! Each program runs on a store of its own, and its resource objects to nothing. That of the account is PostgreSQL.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a program in a directory of this test's own, on the store that the program makes there.
fn ends_well(program: &str) {
    let name = format!("{}-{}", Path::new(program).file_name().unwrap().display(), std::process::id());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let mut command = Command::new(program);
    command.env("TMPDIR", &directory).env("XDG_STATE_HOME", &directory).current_dir(&directory);
    let output = command.env_remove("FENCELOCK_STORE").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("file://") && said.contains(directory.to_str().unwrap()), "{said}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn no_two_workers_are_in_the_folder_of_the_mutex() {
    ends_well(env!("CARGO_BIN_EXE_mutex"));
}

#[test]
fn no_reader_sees_a_page_that_is_being_written() {
    ends_well(env!("CARGO_BIN_EXE_rwlock"));
}

#[test]
fn no_guest_finds_too_few_seats() {
    ends_well(env!("CARGO_BIN_EXE_semaphore"));
}

#[test]
fn nothing_is_sold_twice() {
    ends_well(env!("CARGO_BIN_EXE_stock"));
}

#[test]
fn no_change_of_the_balance_is_lost_while_a_teller_is_stopped_again_and_again() {
    let shared = fencelock_testbed::postgres::KIND.shared();
    let url = format!("postgres://fencelock:secret@{}{}", shared.address(), shared.namespace());
    let output = Command::new(env!("CARGO_BIN_EXE_account")).arg(&url).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("it is 160") && !said.contains("stopped 0 times"), "{said}");
}
