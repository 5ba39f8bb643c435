//! Requests that take effect after the client gave them up, as with a server that paused and takes the session back.

use std::io::Result;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fencelock::Name;
use fencelock::inspect::Claim;
use fencelock::store::{Entered, Entry, Left, RequestId, Standing};
use fencelock_testbed::Way;
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::CreateMode;
use futures_util::StreamExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::half_way::Near;
use crate::lab::soon;

const EPHEMERAL: i32 = 1;
const EPHEMERAL_SEQUENTIAL: i32 = 3;

/// The number of the request that deletes a node.
const DELETE: i32 = 2;

/// The answer to a hello: its length, the version, the timeout, the session's number, the length of its password, that, and a flag.
type Welcome = [u8; 41];

/// A way to the server that keeps the newest welcome, and can end the connection before the next deletion.
struct Ear {
    address: SocketAddr,
    heard: Arc<Mutex<Welcome>>,
    loses_deletion: Arc<AtomicBool>,
}

impl Ear {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, heard) = (listener.local_addr().unwrap(), Arc::new(Mutex::new([0; 41])));
        let loses_deletion = Arc::<AtomicBool>::default();
        let (hears, loses) = (Arc::clone(&heard), Arc::clone(&loses_deletion));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(relay(near, Arc::clone(&hears), Arc::clone(&loses)));
            }
        });
        Self { address, heard, loses_deletion }
    }

    /// Takes the session over, creates a node in it, and disconnects.
    async fn create(&self, path: &str, flags: i32) {
        let welcome = *self.heard.lock().unwrap();
        let mut server = TcpStream::connect(shared().address()).await.unwrap();
        let (timeout, session) = (&welcome[8..12], &welcome[12..40]);
        // The hello has version 0, no transaction seen, and refuses a read-only server.
        let hello = [&[0; 12], timeout, session, &[0]].concat();
        server.write_all(&frame(&hello)).await.unwrap();
        let mut again: Welcome = [0; 41];
        server.read_exact(&mut again).await.unwrap();
        assert_eq!(again[12..40], *session, "the session is over");
        let number = |number: i32| number.to_be_bytes().to_vec();
        let text = |text: &str| [number(text.len().try_into().unwrap()), text.as_bytes().to_vec()].concat();
        let everybody = [number(1), number(31), text("world"), text("anyone")].concat();
        let create = [number(1), number(1), text(path), text(""), everybody, number(flags)].concat();
        server.write_all(&frame(&create)).await.unwrap();
        let mut header = [0; 20];
        server.read_exact(&mut header).await.unwrap();
        assert_eq!(header[16..], [0; 4], "the server refused it");
    }
}

fn frame(record: &[u8]) -> Vec<u8> {
    [&i32::try_from(record.len()).unwrap().to_be_bytes()[..], record].concat()
}

async fn relay(mut near: TcpStream, hears: Arc<Mutex<Welcome>>, loses_deletion: Arc<AtomicBool>) -> Result<()> {
    let mut server = TcpStream::connect(shared().address()).await?;
    let ((mut up, mut down), (mut answers, mut requests)) = (near.split(), server.split());
    let answering = async {
        let mut welcome: Welcome = [0; 41];
        answers.read_exact(&mut welcome).await?;
        *hears.lock().unwrap() = welcome;
        down.write_all(&welcome).await?;
        copy(&mut answers, &mut down).await
    };
    tokio::select! {
        ended = answering => ended.map(drop),
        ended = pass(&mut up, &mut requests, &loses_deletion) => ended,
    }
}

/// Passes requests on.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    loses_deletion: &AtomicBool,
) -> Result<()> {
    // The hello has no number.
    let mut is_hello = true;
    loop {
        let length = from.read_u32().await?;
        let mut request = vec![0; length as usize];
        from.read_exact(&mut request).await?;
        let is_deletion = !std::mem::take(&mut is_hello) && request[4..8] == DELETE.to_be_bytes();
        if is_deletion && loses_deletion.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        to.write_all(&frame(&request)).await?;
    }
}

/// The name of a node, without its number.
fn node(letter: char, number: u64, mark: &str) -> String {
    format!("_c_{letter}0000000-0000-{number:04x}-0000-000000000007-{mark}")
}

impl Near {
    /// Renews until `name` has these nodes.
    async fn renew_until(&mut self, name: &str, nodes: &[String]) {
        let Self { lab, opened, .. } = self;
        soon(async {
            loop {
                let renewed = async {
                    let _ = opened.session.renew(&[]).await;
                    lab.children(name).await == nodes
                };
                tokio::select! {
                    are_there = renewed => if are_there { return },
                    _ = opened.events.next() => {}
                }
            }
        })
        .await;
    }

    /// A node of this session appears.
    async fn appears(&self, ear: &Ear, below: &str, flags: i32) {
        // Until then this client is not to take the session back.
        self.proxy.refuse();
        ear.create(&self.lab.path(below), flags).await;
        self.proxy.heal();
    }

    /// A lock of this name that is free and has a parent.
    async fn lock(&self, name: &str, claim: Claim) {
        self.place(name, claim, 1).await.unwrap().leave().await.unwrap();
    }
}

fn id(number: u64) -> RequestId {
    RequestId { client: 7, number }
}

#[tokio::test]
async fn a_node_that_appears_after_its_request_was_withdrawn_is_deleted_and_no_other() {
    let ear = Ear::new().await;
    let mut near = Near::by(ear.address).await;
    near.lock("job", Claim::MUTEX).await;
    near.proxy.cut_after(0, Way::Up);
    assert!(near.place("job", Claim::MUTEX, 2).await.is_err());
    soon(near.opened.session.withdraw(&Name::new("job").unwrap(), id(2))).await.unwrap();
    let below = format!("job/{}", node('a', 2, "lock-"));
    let others = near.lab.put(&below, CreateMode::EphemeralSequential).await;
    near.appears(&ear, &below, EPHEMERAL_SEQUENTIAL).await;
    assert_eq!(near.lab.children("job").await.len(), 2);
    near.renew_until("job", &[others.trim_start_matches("job/").to_owned()]).await;
}

#[tokio::test]
async fn a_second_node_of_one_request_is_deleted_and_the_place_is_kept() {
    let ear = Ear::new().await;
    let mut near = Near::by(ear.address).await;
    near.lock("job", Claim::MUTEX).await;
    near.proxy.cut_after(0, Way::Up);
    assert!(near.place("job", Claim::MUTEX, 2).await.is_err());
    let mut place = near.place("job", Claim::MUTEX, 2).await.unwrap();
    assert!(matches!(place.standing(), Standing::Granted(_)));
    let held = near.lab.children("job").await;
    near.appears(&ear, &format!("job/{}", node('a', 2, "lock-")), EPHEMERAL_SEQUENTIAL).await;
    near.renew_until("job", &held).await;
    assert_eq!(soon(place.leave()).await.unwrap(), Left::Released);
    assert!(near.lab.children("job").await.is_empty());
}

/// The deletion may take effect later.
#[tokio::test]
async fn a_try_whose_deletion_had_no_answer_is_repeated_with_another_node() {
    let ear = Ear::new().await;
    let near = Near::by(ear.address).await;
    let mut holder = near.place("job", Claim::MUTEX, 1).await.unwrap();
    let entry = Entry { name: holder.id().name, claim: Claim::MUTEX, id: id(2), wait: false, purpose: None };
    let entry = Arc::new(entry);
    ear.loses_deletion.store(true, Ordering::SeqCst);
    let lost = soon(near.opened.session.enter(Arc::clone(&entry))).await.map(drop).unwrap_err();
    assert!(lost.is_retryable() && !ear.loses_deletion.load(Ordering::SeqCst), "{lost}");
    let deleted = near.lab.children("job").await.pop();
    assert_eq!(soon(holder.leave()).await.unwrap(), Left::Released);
    let Entered::In(place) = soon(near.opened.session.enter(entry)).await.unwrap() else { panic!("the lock is free") };
    assert!(matches!(place.standing(), Standing::Granted(_)));
    let held = near.lab.children("job").await;
    assert!(held.len() == 1 && held.first() != deleted.as_ref(), "{held:?}");
}

#[tokio::test]
async fn a_lighter_node_that_appears_after_its_place_was_left_is_deleted() {
    let ear = Ear::new().await;
    let mut near = Near::by(ear.address).await;
    let mut place = near.place("page", Claim::WRITER, 2).await.unwrap();
    near.proxy.cut_after(0, Way::Up);
    assert!(soon(place.lighten(Claim::READER)).await.is_err());
    assert_eq!(soon(place.leave()).await.unwrap(), Left::Released);
    let lighter = format!("page/{}0000000000", node('b', 2, "__READ__"));
    near.appears(&ear, &lighter, EPHEMERAL).await;
    assert_eq!(near.lab.children("page").await.len(), 1);
    near.renew_until("page", &[]).await;
}
