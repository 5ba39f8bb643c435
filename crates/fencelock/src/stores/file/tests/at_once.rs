//! The work of a caller on its own thread: joining and leaving where no other place is in the way, and nothing that may take long.

use futures_util::FutureExt;
use rustix::fs::FlockOperation;

use super::super::ticket::EncodedName;
use super::*;

const NAME: &str = "a";

/// A client of a store that knows its ceiling: learning it may wait for the disk.
async fn client(store: &FileStore, clock: &Arc<SteppedClock>) -> Client {
    let mut client = Client::with_clock(store, Arc::clone(clock) as Arc<dyn Clock>);
    client.enter(NAME, Claim::MUTEX).await.leave().await.unwrap();
    client
}

impl Client {
    /// The place that is made at once, if one is.
    fn enter_now(&mut self) -> Option<Box<dyn Place>> {
        let entry = self.entry(NAME, Claim::MUTEX, true);
        self.session.enter(entry).now_or_never().map(|entered| place(entered.unwrap()))
    }
}

/// The directory of the bucket that everything here is in.
fn bucket(directory: &TempDir) -> std::path::PathBuf {
    let index = EncodedName::of(&Name::new(NAME).unwrap()).bucket;
    directory.path().join(directory::Directory::bucket_path(index))
}

#[tokio::test]
async fn an_uncontended_cycle_is_done_at_the_first_poll() {
    let directory = directory();
    let client = crate::Client::builder().connect_store(Arc::new(store(&directory))).await.unwrap();
    let lock = client.mutex(NAME).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let mut at_once = 0;
    for _ in 0..1000 {
        match lock.acquire().now_or_never() {
            Some(guard) => at_once += usize::from(guard.unwrap().release().now_or_never().is_some()),
            // A renewal is at the bucket, or tokio gives others their turn.
            None => lock.acquire().await.unwrap().release().await.unwrap(),
        }
    }
    assert!(at_once > 900, "{at_once} of 1000");
}

#[tokio::test]
async fn only_a_contender_with_none_in_the_way_is_answered_at_once_and_others_leave_nothing() {
    let (directory, clock) = (directory(), Arc::default());
    let (near, far) = (store(&directory), store(&directory));
    let mut new = Client::on(&near);
    assert!(new.enter_now().is_none(), "the ceiling is not known");
    let mut clients = [client(&near, &clock).await, client(&near, &clock).await, client(&far, &clock).await];
    let [first, beside, other] = &mut clients;
    let mut held = first.enter_now().expect("no contender is in the way");
    let before = token(&*held);
    assert!(beside.enter_now().is_none() && other.enter_now().is_none());
    assert_eq!(tickets(&directory), 1);
    assert_eq!(held.leave().now_or_never().unwrap().unwrap(), Left::Released);
    assert_eq!(held.leave().now_or_never().unwrap().unwrap(), Left::AlreadyGone);
    let mut held = other.enter_now().expect("the remains block no contender");
    assert!(token(&*held) > before && tickets(&directory) == 1);
    held.leave().await.unwrap();
}

#[tokio::test]
async fn a_request_that_would_wait_for_a_short_lock_is_not_answered_inline() {
    let (directory, clock) = (directory(), Arc::default());
    let store = store(&directory);
    let mut client = client(&store, &clock).await;
    let mut held = client.enter_now().unwrap();
    {
        let index = EncodedName::of(&Name::new(NAME).unwrap()).bucket;
        let known = client.core.directory.bucket(index);
        let _at_it = known.lock();
        assert!(
            held.leave().now_or_never().is_none() && client.enter_now().is_none(),
            "another task of this process has the bucket"
        );
    }
    assert_eq!(held.leave().now_or_never().unwrap().unwrap(), Left::Released);
    let elsewhere = std::fs::File::open(bucket(&directory)).unwrap();
    rustix::fs::flock(&elsewhere, FlockOperation::LockExclusive).unwrap();
    assert!(client.enter_now().is_none(), "another process is in the lock");
    drop(elsewhere);
    assert!(client.enter_now().is_some());
}

#[tokio::test]
async fn a_request_that_syncs_or_lists_for_long_is_not_answered_inline() {
    let (directory, clock) = (directory(), Arc::<SteppedClock>::default());
    let (near, far) = (store(&directory), store(&directory));
    let mut client = client(&near, &clock).await;
    clock.seconds.store(20 * 60, Ordering::SeqCst);
    assert!(client.enter_now().is_none(), "the ceiling has to be moved");
    client.enter(NAME, Claim::MUTEX).await.leave().await.unwrap();
    assert!(client.enter_now().unwrap().leave().now_or_never().is_some());
    for number in 0..500 {
        std::os::unix::fs::symlink("1", bucket(&directory).join(format!("{}-{number}", "x".repeat(200)))).unwrap();
    }
    assert!(client.enter_now().unwrap().leave().now_or_never().is_some(), "no contender has arrived since the listing");
    Client::on(&far).enter(NAME, Claim::MUTEX).await.leave().await.unwrap();
    assert!(client.enter_now().is_none(), "it has to be listed");
    client.enter(NAME, Claim::MUTEX).await.leave().await.unwrap();
    std::fs::remove_dir_all(bucket(&directory)).unwrap();
    assert!(client.enter_now().is_none(), "the bucket has to be made anew");
    client.enter(NAME, Claim::MUTEX).await.leave().await.unwrap();
    assert!(client.enter_now().is_some());
}

#[tokio::test]
async fn a_request_that_is_pending_after_its_first_poll_has_no_ticket_and_waits_where_it_is_polled_next() {
    let (directory, clock) = (directory(), Arc::default());
    let (near, far) = (store(&directory), store(&directory));
    let (mut first, mut other) = (client(&near, &clock).await, client(&far, &clock).await);
    let mut held = first.enter_now().unwrap();
    let entry = other.entry(NAME, Claim::MUTEX, true);
    let mut request = other.session.enter(entry);
    let polled = std::thread::scope(|scope| scope.spawn(|| (&mut request).now_or_never().is_none()).join());
    assert!(polled.unwrap() && tickets(&directory) == 1);
    let mut waiting = place(request.await.unwrap());
    assert_eq!(tickets(&directory), 2);
    let (_, left) = tokio::join!(granted(&mut waiting), held.leave());
    assert_eq!(left.unwrap(), Left::Released);
}
