//! Names of servers: several addresses of which one is silent, and a name server that falls silent. In mount namespaces with files of
//! their own in the place of the system's; needs root.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Stdio};

use crate::common::{PROGRAM, Place, Running, code, ended, stderr, until};
use fencelock_testbed::redis::{Server, Settings};

/// A server that is called `store.test` in the place's own files.
fn named(options: &str) -> (Server, Place) {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("redis://store.test:{}?{options}", server.address().port()));
    fs::write(place.path("resolv.conf"), "nameserver 127.0.0.7\n").unwrap();
    fs::write(place.path("nsswitch.conf"), "hosts: files dns\n").unwrap();
    is_at(&place, &["127.0.0.1"]);
    (server, place)
}

fn is_at(place: &Place, addresses: &[&str]) {
    let lines: String = addresses.iter().map(|address| format!("{address} store.test\n")).collect();
    fs::write(place.path("hosts"), lines).unwrap();
}

/// `fencelock` with these arguments, where names are as the place's files say.
fn fencelock(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let own = "for file in hosts resolv.conf nsswitch.conf; do mount --bind $file /etc/$file || exit 1; done; exec \"$0\" \"$@\"";
    command.args(["--mount", "sh", "-c", own, PROGRAM]).args(arguments);
    command.env("FENCELOCK_STORE", place.url()).current_dir(place.directory.path()).stdin(Stdio::null());
    command
}

fn cuts_every_connection(server: &Server) {
    server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
}

/// How many clients of ours are connected.
fn clients(server: &Server) -> usize {
    server.ask(&["CLIENT", "LIST"]).unwrap().to_string().matches("resp=3").count()
}

#[test]
fn a_silent_address_costs_neither_newcomers_nor_holders_anything() {
    let (server, place) = named("ttl_ms=6000");
    let _silent = TcpListener::bind(("::1", server.address().port())).unwrap();
    is_at(&place, &["::1", "127.0.0.1"]);
    assert_eq!(ended(&mut fencelock(&place, &["run", "job", "--", "true"])), (0, String::new()));
    let holder =
        fencelock(&place, &["run", "job", "--", "sh", "-c", "echo > ready; cat"]).stdin(Stdio::piped()).spawn();
    let holder = Running(Some(holder.unwrap()));
    until("it holds", || place.path("ready").exists().then_some(()));
    for _ in 0..3 {
        cuts_every_connection(&server);
        until("it is connected again", || (clients(&server) > 0).then_some(()));
    }
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_name_server_that_falls_silent_costs_no_holder_its_lock_and_is_reported_to_newcomers() {
    let _silent = UdpSocket::bind("127.0.0.7:53").unwrap();
    let (server, place) = named("ttl_ms=6000");
    let holder =
        fencelock(&place, &["run", "job", "--", "sh", "-c", "echo > ready; sleep 15"]).stderr(Stdio::piped()).spawn();
    let holder = Running(Some(holder.unwrap()));
    until("it holds", || place.path("ready").exists().then_some(()));
    is_at(&place, &[]);
    cuts_every_connection(&server);
    let (newcomer, said) = ended(&mut fencelock(&place, &["run", "--connect-wait", "4s", "other", "--", "true"]));
    assert_eq!((newcomer, said.contains("name of the server")), (69, true), "{said}");
    let held = holder.end();
    assert_eq!((code(&held), stderr(&held)), (0, String::new()));
}
