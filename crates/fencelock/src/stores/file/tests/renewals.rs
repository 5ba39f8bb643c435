//! The losses that renewals find, and the effect on clients of removing a directory's parts.

use super::super::ticket::EncodedName;
use super::*;

/// How many places a renewal found gone.
async fn renewal(client: &Client, places: &[Box<dyn Place>]) -> usize {
    let places: Vec<_> = places.iter().map(|place| place.id()).collect();
    client.session.renew(&places).await.unwrap().gone.len()
}

pub(super) fn remove_ticket(directory: &TempDir, client: &Client, place: &dyn Place) {
    let slot = EncodedName::of(&place.id().name);
    let bucket = directory.path().join(Directory::bucket_path(slot.bucket));
    let mut files = std::fs::read_dir(bucket).unwrap().map(|file| file.unwrap());
    let last = format!(".{:016x}.{:x}", client.core.id, place.id().request.number);
    let ticket = files.find(|file| file.file_name().to_str().unwrap().ends_with(&last)).unwrap();
    std::fs::remove_file(ticket.path()).unwrap();
}

#[tokio::test]
async fn a_ticket_that_went_before_its_first_renewal_is_missed_by_that() {
    let directory = directory();
    let store = store(&directory);
    let mut client = Client::on(&store);
    let places = [client.enter("job", Claim::MUTEX).await, client.enter("job", Claim::MUTEX).await];
    remove_ticket(&directory, &client, &*places[1]);
    for _ in 0..2 {
        assert_eq!(renewal(&client, &places[..1]).await, 0);
    }
    assert_eq!(renewal(&client, &places).await, 1);
}

#[tokio::test]
async fn a_holder_with_any_ttl_is_notified_of_the_removal_of_its_ticket() {
    let directory = directory();
    let builder = crate::Client::builder().ttl(Duration::from_secs(24 * 3600));
    let client = builder.connect_store(store(&directory)).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    for ticket in
        std::fs::read_dir(directory.path().join(Directory::bucket_path(EncodedName::of(guard.name()).bucket))).unwrap()
    {
        std::fs::remove_file(ticket.unwrap().path()).unwrap();
    }
    let lost = tokio::time::timeout(Duration::from_secs(180), guard.lost()).await.expect("no renewal looked");
    assert_eq!(lost, Loss::Removed);
}

#[tokio::test]
async fn the_next_renewal_ends_a_session_whose_directory_of_sessions_was_renamed() {
    let directory = directory();
    let here = store(&directory);
    let client = Client::on(&here);
    assert_eq!(renewal(&client, &[]).await, 0);
    let sessions = directory.path().join("sessions");
    std::fs::rename(&sessions, directory.path().join("old")).unwrap();
    std::fs::create_dir(&sessions).unwrap();
    assert_eq!(client.session.renew(&Vec::new()).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(client.session.over(), Some(Loss::Removed));
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
