//! The proxy changes bytes on command, and never otherwise.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencelock_testbed::{PATIENCE, Port, Proxy, Way, wait_until};

/// A server that sends back all bytes, and ends when its client does.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
    address
}

/// A server that keeps the last connection's bytes for the test.
fn sink() -> (SocketAddr, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let send = send.clone();
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = stream.read_to_end(&mut bytes);
                send.send(bytes)
            });
        }
    });
    (address, receive)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(bytes)?;
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Whether nothing can be read from `stream` now.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let silent = loop {
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock),
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    silent
}

#[test]
fn bytes_pass_both_ways_and_are_counted() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(exchange(&mut stream, b"hello").unwrap(), b"hello");
    assert!(wait_until(PATIENCE, || proxy.bytes() == (5, 5)));
    assert_eq!((proxy.connections(), proxy.open_connections()), (1, 1));
    drop(stream);
    assert!(wait_until(PATIENCE, || proxy.open_connections() == 0));
}

#[test]
fn pipelined_requests_share_one_delay() {
    let proxy = Proxy::start(echo()).unwrap();
    proxy.delay(Duration::from_millis(50));
    let mut stream = connect(&proxy);
    let start = Instant::now();
    for part in [b"a", b"b", b"c"] {
        stream.write_all(part).unwrap();
        thread::yield_now();
    }
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"abc");
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[test]
fn held_bytes_come_later_and_in_order() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = connect(&proxy);
    exchange(&mut stream, b"x").unwrap();
    proxy.hold(Way::Down);
    stream.write_all(b"one ").unwrap();
    stream.write_all(b"two").unwrap();
    assert!(is_silent(&mut stream));
    proxy.release();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"one two");
}

#[test]
fn bytes_held_on_one_connection_arrive_after_it_was_closed_and_do_not_hold_another() {
    let (address, arrived) = sink();
    let proxy = Proxy::start(address).unwrap();
    let mut old = connect(&proxy);
    old.write_all(b"early ").unwrap();
    assert!(wait_until(PATIENCE, || proxy.bytes().0 == 6));
    proxy.hold_existing(Way::Up);
    old.write_all(b"late").unwrap();
    drop(old);
    connect(&proxy).write_all(b"new").unwrap();
    assert_eq!(arrived.recv_timeout(PATIENCE).unwrap(), b"new");
    assert!(wait_until(PATIENCE, || proxy.open_connections() == 1));
    proxy.release();
    assert_eq!(arrived.recv_timeout(PATIENCE).unwrap(), b"early late");
}

#[test]
fn a_connection_that_lost_bytes_to_a_hole_carries_none_of_the_later_ones() {
    let (address, arrived) = sink();
    let proxy = Proxy::start(address).unwrap();
    let mut holed = connect(&proxy);
    proxy.hole(Way::Up);
    holed.write_all(b"a request and ").unwrap();
    assert!(wait_until(PATIENCE, || proxy.lost_bytes()));
    proxy.release();
    holed.write_all(b"half of the next").unwrap();
    drop(holed);
    assert_eq!(arrived.recv_timeout(PATIENCE).unwrap(), b"");
}

#[test]
fn a_hole_swallows_and_healing_resets_what_lost_bytes() {
    let proxy = Proxy::start(echo()).unwrap();
    let (mut whole, mut holed) = (connect(&proxy), connect(&proxy));
    exchange(&mut whole, b"x").unwrap();
    exchange(&mut holed, b"x").unwrap();
    proxy.hole(Way::Up);
    holed.write_all(b"gone").unwrap();
    assert!(wait_until(PATIENCE, || proxy.lost_bytes()));
    assert!(is_silent(&mut holed));
    proxy.heal();
    assert_eq!(holed.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(exchange(&mut whole, b"still").unwrap(), b"still");
}

#[test]
fn a_connection_is_cut_right_after_the_byte_asked_for_and_the_next_one_is_not() {
    let proxy = Proxy::start(echo()).unwrap();
    for after in [0, 1, 4] {
        let mut stream = connect(&proxy);
        exchange(&mut stream, b"x").unwrap();
        proxy.cut_after(after, Way::Down);
        stream.write_all(b"12345").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"12345"[..usize::try_from(after).unwrap()]);
    }
    assert_eq!(exchange(&mut connect(&proxy), b"fine").unwrap(), b"fine");
    assert_eq!(proxy.cuts(), 3);
}

#[test]
fn connections_are_reset_and_refused_until_healed() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = connect(&proxy);
    exchange(&mut stream, b"x").unwrap();
    proxy.reset();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    proxy.refuse();
    assert!(exchange(&mut connect(&proxy), b"x").is_err());
    proxy.heal();
    assert_eq!(exchange(&mut connect(&proxy), b"x").unwrap(), b"x");
}

#[test]
fn a_proxy_without_a_server_resets_and_a_dropped_one_does_not_listen() {
    let free = Port::reserve().unwrap();
    let proxy = Proxy::start(free.address()).unwrap();
    assert!(exchange(&mut connect(&proxy), b"x").is_err());
    let address = proxy.address();
    drop(proxy);
    // A child that another test starts meanwhile may keep the listener for a moment.
    assert!(wait_until(PATIENCE, || TcpStream::connect(address).is_err()));
}

#[test]
fn a_proxy_leads_new_connections_to_another_server_and_leaves_the_open_ones() {
    let (echo, (sink, sunk)) = (echo(), sink());
    let proxy = Proxy::start(echo).unwrap();
    let mut open = connect(&proxy);
    assert_eq!(exchange(&mut open, b"one").unwrap(), b"one");
    proxy.lead_to(sink);
    let mut moved = connect(&proxy);
    moved.write_all(b"two").unwrap();
    drop(moved);
    assert_eq!(sunk.recv().unwrap(), b"two");
    assert_eq!(exchange(&mut open, b"three").unwrap(), b"three");
}

#[test]
fn a_patient_proxy_keeps_connections_until_a_server_listens() {
    let later = Port::reserve().unwrap();
    let proxy = Proxy::start_patient(later.address(), Duration::from_secs(60)).unwrap();
    let mut stream = connect(&proxy);
    stream.write_all(b"x").unwrap();
    let server = TcpListener::bind(later.address()).unwrap();
    let mut byte = [0];
    server.accept().unwrap().0.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

/// A child has the descriptors of all threads of its parent until it runs another program.
#[test]
fn a_port_is_found_while_other_threads_start_processes() {
    let done = AtomicBool::new(false);
    let spawn = || {
        while !done.load(Ordering::Relaxed) {
            Command::new("true").status().unwrap();
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(spawn);
        }
        let upstream = "127.0.0.1:9".parse().unwrap();
        let started: io::Result<Vec<Proxy>> = (0..500).map(|_| Proxy::start(upstream)).collect();
        done.store(true, Ordering::Relaxed);
        started.unwrap();
    });
}
