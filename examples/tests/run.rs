//! Each program runs on a store of its own, and its resource objects to nothing. The account and the document are in PostgreSQL.

#[path = "run/alerts.rs"]
mod alerts;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
fn each_version_of_a_configuration_is_loaded_once_and_reaches_all() {
    ends_well(env!("CARGO_BIN_EXE_config"));
}

#[test]
fn an_order_that_eight_shops_receive_is_taken_once() {
    ends_well(env!("CARGO_BIN_EXE_order"));
}

#[test]
fn a_report_is_made_once_although_its_first_host_dies_over_it() {
    ends_well(env!("CARGO_BIN_EXE_report"));
}

#[test]
fn no_money_is_made_or_lost_by_transfers_between_ten_accounts() {
    ends_well(env!("CARGO_BIN_EXE_transfers"));
}

#[test]
fn each_name_is_locked_in_the_store_of_its_layer() {
    ends_well(env!("CARGO_BIN_EXE_layers"));
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

#[test]
fn no_line_of_four_editors_is_lost_although_no_editor_locks() {
    let shared = fencelock_testbed::postgres::KIND.shared();
    let url = format!("postgres://fencelock:secret@{}{}", shared.address(), shared.namespace());
    let output = Command::new(env!("CARGO_BIN_EXE_optimistic")).arg(&url).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with("4 editors saved 25 lines each"), "{said}");
}

#[test]
fn a_late_holder_writes_no_key_of_redis() {
    let shared = fencelock_testbed::redis::KIND.shared();
    let url = format!("redis://{}{}", shared.address(), shared.namespace());
    let output = Command::new(env!("CARGO_BIN_EXE_fenced")).arg(&url).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the late write was refused") && said.contains("FENCED"), "{said}");
}

/// A program that runs until the end of the test.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The reply of the service at `address`.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

#[test]
fn a_service_exports_what_its_locks_do() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics"));
    let mut service = Service(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut address = String::new();
    BufReader::new(service.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim().strip_prefix("http://").and_then(|at| at.strip_suffix("/metrics")).unwrap();
    for order in 0..3 {
        assert!(get(address, &format!("/orders/{order}")).contains("token Some("));
    }
    let exported = get(address, "/metrics");
    for line in [
        "fencelock_acquires_total{class=\"orders/*\",outcome=\"granted\"} 3",
        "fencelock_holders{class=\"orders/*\"} 0",
        "fencelock_hold_seconds_count{class=\"orders/*\"} 3",
        "fencelock_wait_seconds_bucket{class=\"orders/*\",le=\"+Inf\"} 3",
        "fencelock_sessions_opened_total 1",
    ] {
        assert!(exported.lines().any(|exported| exported == line), "{line} is missing in\n{exported}");
    }
}
