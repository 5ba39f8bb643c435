//! What renewals look at: few things while nothing changes, and all that may have changed.

use super::super::ticket::{EncodedName, base32};
use super::*;

/// A client whose wall clock is ahead of the file system's by so many seconds.
fn client_ahead(store: &FileStore, seconds: i64) -> Client {
    let clock = SteppedClock::default();
    clock.seconds.store(seconds, Ordering::SeqCst);
    Client::with_clock(store, Arc::new(clock))
}

fn looked_for(store: &FileStore) -> u64 {
    store.directory().tickets_looked_for.load(Ordering::SeqCst)
}

/// How many tickets a renewal looked for, and how many places it found gone.
async fn renewal(store: &FileStore, client: &Client, places: &[Box<dyn Place>]) -> (u64, usize) {
    let before = looked_for(store);
    let places: Vec<_> = places.iter().map(|place| place.id()).collect();
    let renewal = client.session.renew(&places).await.unwrap();
    (looked_for(store) - before, renewal.gone.len())
}

pub(super) fn remove_ticket(directory: &TempDir, client: &Client, place: &dyn Place) {
    let slot = EncodedName::of(&place.id().name);
    let bucket = directory.path().join(Directory::bucket_path(slot.bucket));
    let mut files = std::fs::read_dir(bucket).unwrap().map(|file| file.unwrap());
    let (session, number) = (base32(client.core.id, 13), base32(place.id().request.number, 1));
    let last = format!(".{session}.{number}");
    let ticket = files.find(|file| file.file_name().to_str().unwrap().ends_with(&last)).unwrap();
    std::fs::remove_file(ticket.path()).unwrap();
}

#[tokio::test]
async fn a_renewal_looks_for_no_ticket_in_a_bucket_that_has_stayed_as_it_was() {
    let directory = directory();
    let store = store(&directory);
    let mut client = client_ahead(&store, 60);
    let mut places = Vec::new();
    for _ in 0..100 {
        places.push(client.enter("job", Claim::MUTEX).await);
        places.push(client.enter(&format!("other/{}", places.len()), Claim::MUTEX).await);
    }
    assert_eq!(renewal(&store, &client, &places).await, (200, 0));
    assert_eq!(renewal(&store, &client, &places).await, (0, 0));
    places.push(client.enter("job", Claim::MUTEX).await);
    let (looked, gone) = renewal(&store, &client, &places).await;
    assert!((101..201).contains(&looked) && gone == 0, "it looked for {looked}");
    assert_eq!(renewal(&store, &client, &places).await, (0, 0));
    remove_ticket(&directory, &client, &*places[0]);
    assert_eq!(renewal(&store, &client, &places).await.1, 1);
}

#[tokio::test]
async fn a_renewal_looks_for_all_tickets_while_a_change_may_hide_in_the_steps_of_the_clock() {
    let directory = directory();
    let store = store(&directory);
    // The last change lies in the future: the clock was set back since.
    let mut client = client_ahead(&store, -3600);
    let places = [client.enter("job", Claim::MUTEX).await, client.enter("job", Claim::MUTEX).await];
    for _ in 0..3 {
        assert_eq!(renewal(&store, &client, &places).await, (2, 0));
    }
}

#[tokio::test]
async fn a_ticket_that_went_before_its_first_renewal_is_missed_by_that() {
    let directory = directory();
    let store = store(&directory);
    let mut client = client_ahead(&store, 60);
    let places = [client.enter("job", Claim::MUTEX).await, client.enter("job", Claim::MUTEX).await];
    remove_ticket(&directory, &client, &*places[1]);
    for _ in 0..2 {
        assert_eq!(renewal(&store, &client, &places[..1]).await.1, 0);
    }
    assert_eq!(renewal(&store, &client, &places).await.1, 1);
}

#[tokio::test]
async fn a_holder_hears_of_the_removal_of_its_ticket_whatever_its_ttl() {
    let directory = directory();
    let builder = crate::Client::builder().ttl(Duration::from_secs(24 * 3600));
    let client = builder.connect_store(store(&directory)).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    for ticket in
        std::fs::read_dir(directory.path().join(Directory::bucket_path(EncodedName::of(guard.name()).bucket))).unwrap()
    {
        std::fs::remove_file(ticket.unwrap().path()).unwrap();
    }
    let lost = tokio::time::timeout(Duration::from_secs(180), guard.lost()).await.expect("nobody looked");
    assert_eq!(lost, Loss::Removed);
}

#[test]
fn a_directory_that_is_in_use_is_locked_against_the_cleaner_of_systemd() {
    let directory = directory();
    let cleaner = std::fs::File::open(directory.path()).unwrap();
    let store = store(&directory);
    assert!(cleaner.try_lock().is_err(), "systemd-tmpfiles would clean it");
    drop(store);
    cleaner.try_lock().unwrap();
}

#[tokio::test]
async fn the_removal_of_the_counters_ends_no_holder_and_the_next_opening_says_how_to_mend_that() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut holder, mut other) = (Client::on(&near), Client::on(&far));
    let held = holder.enter("job", Claim::MUTEX).await;
    for gone in ["counters", "layout"] {
        std::fs::remove_file(directory.path().join(gone)).unwrap();
        // They go by the counters that they opened, and by the same.
        let renewal = holder.session.renew(&[held.id()]).await.unwrap();
        assert_eq!((renewal.gone.len(), holder.session.over()), (0, None), "without {gone}");
        let entry = other.entry("job", Claim::MUTEX, false);
        assert!(matches!(other.session.enter(entry).await.unwrap(), Entered::Busy), "without {gone}");
        let error = FileStore::open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Layout, "{error}");
        let told = error.to_string();
        assert!(told.contains("remove what is left of it") && told.contains("/counters"), "without {gone}: {told}");
    }
    std::fs::remove_dir_all(directory.path()).unwrap();
    let anew = store(&directory);
    token(&*Client::on(&anew).enter("job", Claim::MUTEX).await);
}
