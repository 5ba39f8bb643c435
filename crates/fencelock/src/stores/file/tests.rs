//! The store on real directories. Two stores opened `another_process` share nothing in memory, as two processes would.

mod at_once;
mod crowds;
#[cfg(all(test, feature = "deep"))]
mod deep;
mod edges;
mod hostile;
mod notes;
mod renewals;
mod wakes;
mod without_events;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::SystemTime;

use futures_util::TryStreamExt;
use tempfile::TempDir;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::queue::Claim;
use crate::store::{
    Entered, Entry, Left, Loss, Opening, Owner, Page, Place, RequestId, Session, SessionEvent, Standing,
};
use crate::time::{Clock, Moment, SystemClock};

/// Counts of a process's work.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The number of tickets whose target was read.
    pub(super) contents_read: AtomicU64,
    /// How often a session of another process was tested.
    pub(super) sessions_tested: AtomicU64,
    pub(super) tickets_looked_for: AtomicU64,
    /// How often a bucket was listed.
    pub(super) listings: AtomicU64,
}

pub(super) fn count(number: &AtomicU64) {
    number.fetch_add(1, Ordering::SeqCst);
}

const TTL: Duration = Duration::from_secs(10);

/// The system's clock, with a wall clock that is set by the test.
#[derive(Debug, Default)]
struct SteppedClock {
    seconds: AtomicI64,
}

impl Clock for SteppedClock {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall(&self) -> SystemTime {
        let seconds = self.seconds.load(Ordering::SeqCst);
        let shift = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { SystemTime::now() - shift } else { SystemTime::now() + shift }
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'_, ()> {
        Box::pin(async move { SystemClock.sleep_until(at).await })
    }
}

/// A client: a session and the numbers of its requests.
struct Client {
    core: Arc<SessionCore>,
    session: FileSession,
    number: u64,
}

impl Client {
    fn on(store: &FileStore) -> Self {
        Self::with_clock(store, Arc::new(SystemClock))
    }

    fn with_clock(store: &FileStore, clock: Arc<dyn Clock>) -> Self {
        let client = getrandom::u64().unwrap();
        let owner = Owner { client, host: "here".to_owned(), pid: std::process::id() };
        let core = store.open_session(&owner, TTL, clock).unwrap();
        Self { session: FileSession(Arc::clone(&core)), core, number: 0 }
    }

    fn entry(&mut self, name: &str, claim: Claim, wait: bool) -> Arc<Entry> {
        self.number += 1;
        let id = RequestId { client: self.core.client, number: self.number };
        let name = Name::new(name).unwrap();
        Arc::new(Entry { name, claim, id, wait, purpose: Some("a test".into()) })
    }

    async fn enter(&mut self, name: &str, claim: Claim) -> Box<dyn Place> {
        let entry = self.entry(name, claim, true);
        place(self.session.enter(entry).await.unwrap())
    }

    async fn attempt(&mut self, name: &str) -> Entered {
        let entry = self.entry(name, Claim::MUTEX, false);
        self.session.enter(entry).await.unwrap()
    }
}

fn place(entered: Entered) -> Box<dyn Place> {
    match entered {
        Entered::In(place) => place,
        Entered::Busy => panic!("busy"),
        Entered::Conflict(claim) => panic!("conflict with {claim}"),
    }
}

fn token(place: &dyn Place) -> u64 {
    match place.standing() {
        Standing::Granted(grant) => grant.token.unwrap().get(),
        other => panic!("not granted: {other:?}"),
    }
}

async fn granted(place: &mut Box<dyn Place>) -> u64 {
    let until = SystemClock.now().after(Duration::from_secs(180));
    place.next(until).await.unwrap();
    token(&**place)
}

fn waits(place: &dyn Place) -> bool {
    matches!(place.standing(), Standing::Waiting(_))
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn names(store: &FileStore, prefix: &str) -> Vec<Name> {
    store.names(prefix).try_concat().await.unwrap()
}

fn store(directory: &TempDir) -> FileStore {
    FileStore::builder(directory.path()).unwrap().another_process().open().unwrap()
}

fn tickets(directory: &TempDir) -> usize {
    let buckets = std::fs::read_dir(directory.path().join("b")).unwrap();
    buckets.map(|bucket| std::fs::read_dir(bucket.unwrap().path()).unwrap().count()).sum()
}

fn sessions(directory: &TempDir) -> usize {
    std::fs::read_dir(directory.path().join("sessions")).unwrap().count()
}

#[tokio::test]
async fn a_crashed_holder_is_followed_by_the_next_one() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut dying, mut next) = (Client::on(&near), Client::on(&far));
    let held = dying.enter("a", Claim::MUTEX).await;
    let mut waiting = next.enter("a", Claim::MUTEX).await;
    assert!(waits(&*waiting));
    let (token, ()) = tokio::join!(granted(&mut waiting), async {
        tokio::task::yield_now().await;
        dying.core.drop_session();
    });
    assert!(token > super::tests::token(&*held));
    assert_eq!(tickets(&directory), 1);
    assert_eq!(sessions(&directory), 2);
    let _third = Client::on(&store(&directory));
    assert_eq!(sessions(&directory), 2, "opening the directory removes the dead session");
}

#[tokio::test]
async fn a_crashed_session_of_this_process_is_followed_too() {
    let directory = directory();
    let here = store(&directory);
    let (mut dying, mut next) = (Client::on(&here), Client::on(&here));
    let _held = dying.enter("a", Claim::MUTEX).await;
    let mut waiting = next.enter("a", Claim::MUTEX).await;
    let (_, ()) = tokio::join!(granted(&mut waiting), async {
        tokio::task::yield_now().await;
        dying.core.drop_session();
    });
}

#[tokio::test]
async fn trying_passes_over_the_dead_and_leaves_nothing_behind_the_living() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut dying, mut other) = (Client::on(&near), Client::on(&far));
    let _held = dying.enter("a", Claim::MUTEX).await;
    assert!(matches!(other.attempt("a").await, Entered::Busy));
    assert_eq!(tickets(&directory), 1);
    dying.core.drop_session();
    let mine = place(other.attempt("a").await);
    token(&*mine);
    assert_eq!(tickets(&directory), 1);
}

#[tokio::test]
async fn tokens_rise_over_a_reboot_that_lost_the_counters_and_a_clock_that_went_back() {
    let directory = directory();
    let boot = |id: &str| FileStore::builder(directory.path()).unwrap().boot_id(id).open().unwrap();
    let clock = Arc::new(SteppedClock::default());
    let mut last = 0;
    for (round, shift) in [0, 3600, -86_400, -200_000, 0].into_iter().enumerate() {
        clock.seconds.store(shift, Ordering::SeqCst);
        let store = boot(&format!("boot-{round}"));
        let mut client = Client::with_clock(&store, Arc::clone(&clock) as Arc<dyn Clock>);
        for _ in 0..3 {
            let mut place = client.enter("a", Claim::MUTEX).await;
            let token = token(&*place);
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
            place.leave().await.unwrap();
        }
        client.core.drop_session();
        drop(client);
        drop(store);
        std::fs::write(directory.path().join("counters"), vec![0; 8 * 4096]).unwrap();
    }
}

#[tokio::test]
async fn processes_that_cannot_tell_the_boot_skip_numbers_once_each_and_tokens_rise() {
    let directory = directory();
    let stores = ["one", "two"].map(|boot| FileStore::builder(directory.path()).unwrap().boot_id(boot).open().unwrap());
    let mut clients = stores.each_ref().map(Client::on);
    let ceiling = || std::fs::read(directory.path().join("ceiling")).unwrap();
    let (mut last, mut settled) = (0, Vec::new());
    for round in 0..20 {
        for client in &mut clients {
            let mut place = client.enter("a", Claim::MUTEX).await;
            let token = token(&*place);
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
            place.leave().await.unwrap();
        }
        if round == 0 {
            settled = ceiling();
        }
    }
    assert_eq!(ceiling(), settled, "the ceiling was moved at each turn");
}

#[tokio::test]
async fn the_same_request_finds_the_same_place_and_a_withdrawn_one_never_takes_effect() {
    let directory = directory();
    let store = store(&directory);
    let mut client = Client::on(&store);
    let entry = client.entry("a", Claim::MUTEX, true);
    let first = place(client.session.enter(Arc::clone(&entry)).await.unwrap());
    let second = place(client.session.enter(Arc::clone(&entry)).await.unwrap());
    assert_eq!(token(&*first), token(&*second));
    assert_eq!(tickets(&directory), 1);
    client.session.withdraw(&entry.name, entry.id).await.unwrap();
    client.session.withdraw(&entry.name, entry.id).await.unwrap();
    assert_eq!(tickets(&directory), 0);
    assert!(client.session.enter(entry).await.is_err());
    assert_eq!(tickets(&directory), 0);
}

#[tokio::test]
async fn an_opening_removes_a_half_made_session_file_once_no_client_can_be_about_to_finish_it() {
    let directory = directory();
    let _client = Client::on(&store(&directory));
    let half_made = |name: &str| std::fs::File::create(directory.path().join("sessions").join(name)).unwrap();
    half_made("tmp.abandoned").set_modified(SystemTime::now() - Duration::from_secs(120)).unwrap();
    drop(half_made("tmp.new"));
    let _other = Client::on(&store(&directory));
    let is_there = |name: &str| directory.path().join("sessions").join(name).exists();
    assert!(!is_there("tmp.abandoned") && is_there("tmp.new"));
}

#[test]
fn sessions_open_although_another_client_sweeps_all_the_time() {
    let directory = directory();
    let store = store(&directory);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sweeping = store.directory();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                sweeping.sweep();
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 0..300 {
                let owner = Owner { client: number, host: "here".into(), pid: 1 };
                let opened =
                    runtime.block_on(async { store.open(Opening::here(owner, TTL, Arc::new(SystemClock))?).await });
                runtime.block_on(opened.unwrap().session.close()).unwrap();
            }
        }));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        opened.unwrap();
    });
}

#[tokio::test]
async fn the_queue_is_shown_front_first_with_owner_purpose_and_age() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut a, mut b, mut dead) = (Client::on(&near), Client::on(&far), Client::on(&far));
    let long = "n".repeat(400);
    let held = a.enter(&long, Claim::MUTEX).await;
    let _waiting = b.enter(&long, Claim::MUTEX).await;
    let _abandoned = dead.enter(&long, Claim::MUTEX).await;
    dead.core.drop_session();
    let queue = near.queue(&Name::new(&long).unwrap(), Page::ALL).await.unwrap();
    assert_eq!(queue.contenders.len(), 2);
    assert_eq!(queue.contenders[0].grant.unwrap().token.unwrap().get(), token(&*held));
    assert_eq!(queue.contenders[0].owner.as_ref().unwrap().pid, std::process::id());
    assert_eq!(queue.contenders[1].purpose.as_deref(), Some("a test"));
    assert!(queue.contenders[1].grant.is_none() && queue.contenders[1].since.is_some());
    let _other = b.enter("job/1", Claim::MUTEX).await;
    assert_eq!(names(&near, "").await.len(), 2);
    assert_eq!(names(&near, "job/").await[0].as_str(), "job/1");
    assert!(near.queue(&Name::new("nobody").unwrap(), Page::ALL).await.unwrap().contenders.is_empty());
}

#[tokio::test]
async fn a_renewal_tells_what_was_removed_by_hand() {
    use futures_util::StreamExt;
    let directory = directory();
    let store = store(&directory);
    let mut client = Client::on(&store);
    let mut events = client.core.events();
    let (kept, lost) = (client.enter("kept", Claim::MUTEX).await, client.enter("lost", Claim::MUTEX).await);
    for bucket in std::fs::read_dir(directory.path().join("b")).unwrap() {
        for ticket in std::fs::read_dir(bucket.unwrap().path()).unwrap() {
            let ticket = ticket.unwrap();
            if ticket.file_name().to_str().unwrap().starts_with("lost.") {
                std::fs::remove_file(ticket.path()).unwrap();
            }
        }
    }
    let renewal = client.session.renew(&[kept.id(), lost.id()]).await.unwrap();
    assert_eq!(renewal.gone, [(lost.id(), Loss::Removed)]);
    assert_eq!(client.session.over(), None);
    std::fs::remove_dir_all(directory.path()).unwrap();
    assert_eq!(client.session.renew(&[kept.id()]).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(client.session.over(), Some(Loss::Removed));
    assert_eq!(events.next().await, Some(SessionEvent::Over));
    assert_eq!(events.next().await, None);
    let late = client.entry("kept", Claim::MUTEX, true);
    let refused = client.session.enter(late).await;
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_process_that_stops_inside_a_short_lock_is_an_error_after_the_deadline() {
    let directory = directory();
    let deadline = Duration::from_millis(50);
    let store =
        FileStore::builder(directory.path()).unwrap().another_process().request_deadline(deadline).open().unwrap();
    let mut client = Client::on(&store);
    client.enter("a", Claim::MUTEX).await.leave().await.unwrap();
    let bucket = std::fs::read_dir(directory.path().join("b")).unwrap().next().unwrap().unwrap();
    let stopped = std::fs::File::open(bucket.path()).unwrap();
    stopped.lock().unwrap();
    let entry = client.entry("a", Claim::MUTEX, true);
    let error = client.session.enter(entry).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.is_retryable() && error.to_string().contains("lslocks"), "{error}");
    stopped.unlock().unwrap();
    client.enter("a", Claim::MUTEX).await;
}

#[test]
fn another_layout_is_refused_and_nothing_is_changed() {
    let directory = directory();
    std::fs::write(directory.path().join("layout"), "fencelock file layout 2\n").unwrap();
    let error = FileStore::open(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layout);
    assert!(error.to_string().contains("layout 2") && error.to_string().contains("layout 1"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_path_that_cannot_be_a_lock_directory_is_refused_by_name() {
    let directory = directory();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = |path: &Path| -> Error {
        let error = FileStore::open(path).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        error
    };
    assert_eq!(refused(&file).kind(), ErrorKind::Config);
    assert_eq!(refused(&directory.path().join("no/such")).kind(), ErrorKind::Config);
    assert_eq!(refused(directory.path()).kind(), ErrorKind::Config, "it holds another file");
    assert_eq!(refused(Path::new("/proc/self")).kind(), ErrorKind::Unsupported);
    let missing = FileStore::builder(directory.path().join("x")).unwrap().create(false).open().unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Config);
}

#[test]
fn a_new_directory_is_private_and_one_for_a_group_stays_so() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let directory = directory();
    let private = directory.path().join("private");
    FileStore::open(&private).unwrap();
    assert_eq!(mode(&private), 0o700);
    assert_eq!(mode(&private.join("counters")), 0o600);
    let shared = directory.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o770)).unwrap();
    let store = FileStore::open(&shared).unwrap();
    assert_eq!((mode(&shared), mode(&shared.join("b")), mode(&shared.join("counters"))), (0o770, 0o770, 0o660));
    drop(store);
}

#[tokio::test]
async fn ten_thousand_locks_are_held_with_few_descriptors() {
    let directory = directory();
    let store = store(&directory);
    let mut client = Client::on(&store);
    let mut places = Vec::new();
    for index in 0..10_000 {
        places.push(client.enter(&format!("lock/{index}"), Claim::MUTEX).await);
    }
    let root = directory.path().to_str().unwrap().to_owned();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let ours = open.filter(|fd| {
        let target = fd.as_ref().ok().and_then(|fd| std::fs::read_link(fd.path()).ok());
        target.is_some_and(|target| target.starts_with(&root))
    });
    assert!(ours.count() < 100);
    let renewal = client.session.renew(&places.iter().map(|place| place.id()).collect::<Vec<_>>()).await.unwrap();
    assert!(renewal.gone.is_empty());
    client.session.close().await.unwrap();
    assert_eq!(tickets(&directory), 0);
}
