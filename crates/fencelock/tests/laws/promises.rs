//! The implicit promises to callers, beyond the signatures: checked when this compiles.

use std::fmt::{Debug, Display};
use std::hash::Hash;

use fencelock::capability::*;
use fencelock::inspect::*;
use fencelock::time::Moment;
use fencelock::*;

/// Can be kept anywhere, shared between threads, and shown.
fn shared<T: Debug + Send + Sync + Unpin + 'static>() {}

fn value<T: Debug + Clone + Eq + Send + Sync + Unpin + 'static>() {}

fn key<T: Debug + Clone + Eq + Hash + Send + Sync + 'static>() {}

fn printed<T: Display>() {}

fn sent<T: Send>(_: impl FnOnce() -> T) {}

#[test]
fn values_of_users_can_be_sent_to_threads_and_shown() {
    shared::<Client>();
    shared::<ClientBuilder>();
    shared::<AnyStore>();
    shared::<Mutex>();
    shared::<RwLock>();
    shared::<Semaphore>();
    shared::<Guard>();
    shared::<ReadGuard>();
    shared::<WriteGuard>();
    shared::<PermitGuard>();
    shared::<AnyGuard>();
    shared::<GuardError<Guard>>();
    shared::<blocking::Client>();
    shared::<blocking::Mutex>();
    shared::<blocking::RwLock>();
    shared::<blocking::Semaphore>();
    shared::<blocking::ReentrantMutex>();
    shared::<blocking::Guard>();
    shared::<memory::MemoryStore>();
    shared::<memory::VirtualClock>();
    shared::<memory::DelayedRequest>();
    shared::<file::FileStore>();
    shared::<Queue>();
    shared::<Contender>();
    shared::<Contention>();
    shared::<StoreInfo>();
    shared::<StoreUrl>();
}

#[test]
fn values_can_be_copied_compared_and_kept_in_maps() {
    value::<Capability>();
    value::<Pace>();
    value::<Timing>();
    value::<Retry>();
    value::<Health>();
    value::<GuardState>();
    value::<Break>();
    value::<ForeignLock>();
    value::<Foreign>();
    value::<Owner>();
    value::<Page>();
    value::<Grant>();
    value::<Ahead>();
    value::<Io>();
    key::<Name>();
    key::<FencingToken>();
    key::<Claim>();
    key::<RequestId>();
    key::<PlaceId>();
    key::<Loss>();
    key::<ErrorKind>();
    key::<Outcome>();
    key::<Presumption>();
    key::<Peer>();
    key::<Residue>();
    key::<Moment>();
}

#[test]
fn errors_go_wherever_errors_go_and_cost_a_word() {
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<Error>();
    error::<GuardError<Guard>>();
    error::<GuardError<blocking::Guard>>();
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    assert_eq!(size_of::<Name>(), 2 * size_of::<usize>());
}

#[test]
fn messages_can_be_printed() {
    printed::<Name>();
    printed::<FencingToken>();
    printed::<Claim>();
    printed::<Owner>();
    printed::<Loss>();
    printed::<Contention>();
    printed::<RequestId>();
    printed::<StoreUrl>();
    printed::<Presumption>();
    printed::<Peer>();
    printed::<Residue>();
}

#[test]
fn futures_go_to_other_threads() {
    let (client, lock) = (None::<Client>, None::<Mutex>);
    sent(|| Client::connect(""));
    sent(|| Client::builder().connect_store(memory::MemoryStore::new()));
    sent(|| client.as_ref().map(|client| client.queue("")));
    sent(|| client.as_ref().map(Client::close));
    sent(|| lock.as_ref().map(Mutex::acquire));
    sent(|| lock.as_ref().map(|lock| lock.run(|_| async {})));
    sent(|| None::<Guard>.map(Guard::release));
    sent(|| None::<&Guard>.map(Guard::lost));
    sent(|| None::<WriteGuard>.map(WriteGuard::downgrade));
}
