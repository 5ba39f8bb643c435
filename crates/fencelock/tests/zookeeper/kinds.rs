//! Read-write locks and semaphores among nodes of other clients, and of operators.

use fencelock::inspect::Claim;
use fencelock::{Client, ErrorKind, Loss, Name};
use fencelock_zookeeper::{Acl, CreateMode};

use crate::lab::{Lab, granted, reading, soon, taking, writing};

/// The names of a family's readers and writers, up to the number.
pub(crate) const FAMILIES: [(&str, &str, &str); 2] = [
    ("", "_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__READ__", "_c_1b230995-c2bc-4a6c-98b5-6f506fd9afae-__WRIT__"),
    ("&layout=kazoo", "94b6e5cf49364b1f8706ee06e5d07c35__rlock__", "14b6e5cf49364b1f8706ee06e5d07c35__lock__"),
];

/// Which contenders the queue shows, and which of them hold the lock.
pub(crate) async fn shown(client: &Client, name: &str) -> Vec<(Claim, bool)> {
    let queue = client.queue(&Name::new(name).unwrap()).await.unwrap();
    queue.contenders.iter().map(|contender| (contender.claim, contender.grant.is_some())).collect()
}

#[tokio::test]
async fn other_families_readers_and_writers_are_waited_for_as_their_own_do() {
    let lab = Lab::new().await;
    for (options, reader, writer) in FAMILIES {
        let client = lab.client(options).await;
        let name = format!("page{}", options.len());
        let foreign = lab.put(&format!("{name}/{reader}"), CreateMode::EphemeralSequential).await;
        let one = client.rwlock(&name).unwrap().try_read().await.unwrap();
        let refused = client.rwlock(&name).unwrap().try_write().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
        let waits = writing(&client, &name);
        lab.until_queued(&name, 3).await;
        one.release().await.unwrap();
        lab.until_queued(&name, 2).await;
        assert_eq!(shown(&client, &name).await, [(Claim::READER, true), (Claim::WRITER, false)]);
        let behind = lab.put(&format!("{name}/{writer}"), CreateMode::EphemeralSequential).await;
        let late = reading(&client, &name);
        lab.until_queued(&name, 4).await;
        lab.delete(&foreign).await;
        granted(waits).await.release().await.unwrap();
        lab.until_queued(&name, 2).await;
        assert!(!late.is_finished(), "a writer of another client is ahead of the reader");
        assert_eq!(shown(&client, &name).await, [(Claim::WRITER, true), (Claim::READER, false)]);
        lab.delete(&behind).await;
        granted(late).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_writer_that_waits_stays_behind_another_clients_downgrade() {
    let lab = Lab::new().await;
    for (options, reader, writer) in FAMILIES {
        let client = lab.client(options).await;
        let name = format!("page{}", options.len());
        let held = lab.put(&format!("{name}/{writer}"), CreateMode::EphemeralSequential).await;
        let reads = reading(&client, &name);
        lab.until_queued(&name, 2).await;
        let waits = writing(&client, &name);
        lab.until_queued(&name, 3).await;
        // A reader with the number of its own writer, which goes then.
        let lighter = format!("{name}/{reader}{}", &held[held.len() - 10..]);
        lab.hands.create(&lab.path(&lighter), b"", CreateMode::Ephemeral, &[Acl::open()]).await.unwrap();
        assert_eq!(shown(&client, &name).await.len(), 3, "the two nodes are of one contender");
        lab.delete(&held).await;
        let read = granted(reads).await;
        assert_eq!(shown(&client, &name).await.iter().filter(|(_, granted)| *granted).count(), 2);
        read.release().await.unwrap();
        assert!(!waits.is_finished(), "a reader holds the lock");
        lab.delete(&lighter).await;
        granted(waits).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn our_downgrade_is_what_the_family_expects_and_lets_no_writer_in() {
    let lab = Lab::new().await;
    for (options, reader, _) in FAMILIES {
        let client = lab.client(options).await;
        let name = format!("page{}", options.len());
        let mark = reader.split_once("__").unwrap().1;
        let writer = client.rwlock(&name).unwrap().write().await.unwrap();
        let token = writer.token().unwrap();
        let waits = writing(&client, &name);
        lab.until_queued(&name, 2).await;
        let reads = reading(&client, &name);
        lab.until_queued(&name, 3).await;
        let reader = writer.downgrade().await.unwrap();
        let children = lab.children(&name).await;
        assert!(children.len() == 3 && children[0].ends_with(&format!("__{mark}0000000000")), "{children:?}");
        let stat = lab.hands.exists(&lab.path(&format!("{name}/{}", children[0]))).await.unwrap().unwrap();
        assert_ne!(stat.ephemeral_owner, 0);
        assert_eq!(reader.token(), Some(token), "a downgrade keeps the token");
        let queue = client.queue(reader.name()).await.unwrap();
        assert_eq!(queue.contenders[0].grant.and_then(|grant| grant.token), Some(token));
        let expected = [(Claim::READER, true), (Claim::WRITER, false), (Claim::READER, false)];
        assert_eq!(shown(&client, &name).await, expected);
        assert!(!waits.is_finished());
        reader.release().await.unwrap();
        granted(waits).await.release().await.unwrap();
        granted(reads).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn another_kind_of_lock_ahead_is_a_conflict_in_every_dialect() {
    let lab = Lab::new().await;
    for (options, ..) in FAMILIES {
        let client = lab.client(options).await;
        for holder in 0..4 {
            let name = format!("job{}-{holder}", options.len());
            let mutex = client.mutex(&name).unwrap();
            let (lock, seats) = (client.rwlock(&name).unwrap(), client.semaphore(&name, 3).unwrap());
            let (mut held, mut kinds) = ((None, None, None, None), Vec::new());
            match holder {
                0 => held.0 = Some(mutex.acquire().await.unwrap()),
                1 => held.1 = Some(lock.read().await.unwrap()),
                2 => held.2 = Some(lock.write().await.unwrap()),
                _ => held.3 = Some(seats.acquire().await.unwrap()),
            }
            if holder != 0 {
                kinds.push(mutex.acquire().await.unwrap_err());
                kinds.push(mutex.try_acquire().await.unwrap_err());
            }
            if !matches!(holder, 1 | 2) {
                kinds.push(lock.read().await.unwrap_err());
                kinds.push(lock.try_write().await.unwrap_err());
            }
            if holder != 3 {
                kinds.push(seats.acquire().await.unwrap_err());
                kinds.push(seats.clone().permits(3).try_acquire().await.unwrap_err());
            }
            for error in kinds {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{holder}{options}: {error}");
            }
            assert_eq!(lab.children(&name).await.len(), 1);
        }
    }
}

#[tokio::test]
async fn a_semaphores_limit_is_agreed_while_a_contender_queues_and_not_after() {
    let (lab, client) = Lab::with_client().await;
    assert_eq!(client.semaphore("seats", 0).unwrap_err().kind(), ErrorKind::Config);
    for count in [0, 4] {
        let refused = client.semaphore("seats", 3).unwrap().permits(count).acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);
    }
    let all = client.semaphore("seats", 3).unwrap().permits(3).acquire().await.unwrap();
    let waits = taking(&client, "seats", 1, 3);
    lab.until_queued("seats", 2).await;
    let other = client.semaphore("seats", 4).unwrap().acquire().await.unwrap_err();
    assert!(other.kind() == ErrorKind::Conflict && other.to_string().contains("of 3"), "{other}");
    all.release().await.unwrap();
    assert_eq!(client.semaphore("seats", 2).unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Conflict);
    granted(waits).await.release().await.unwrap();
    client.semaphore("seats", 2).unwrap().try_acquire().await.unwrap().release().await.unwrap();
    assert!(lab.children("seats").await.is_empty());
}

#[tokio::test]
async fn both_dialects_have_the_same_semaphores() {
    let lab = Lab::new().await;
    let (curator, kazoo) = (lab.client("").await, lab.client("&layout=kazoo").await);
    let one = curator.semaphore("seats", 2).unwrap().acquire().await.unwrap();
    let two = kazoo.semaphore("seats", 2).unwrap().acquire().await.unwrap();
    assert_eq!(kazoo.semaphore("seats", 2).unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    let waits = taking(&curator, "seats", 2, 2);
    lab.until_queued("seats", 3).await;
    one.release().await.unwrap();
    two.release().await.unwrap();
    granted(waits).await.release().await.unwrap();
}

#[tokio::test]
async fn a_node_of_another_kind_in_the_middle_stops_those_behind_it_only() {
    let (lab, client) = Lab::with_client().await;
    let writer = client.rwlock("page").unwrap().write().await.unwrap();
    let first = reading(&client, "page");
    lab.until_queued("page", 2).await;
    let mutex = lab.put("page/_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-", CreateMode::EphemeralSequential).await;
    lab.put("page/nobody-", CreateMode::EphemeralSequential).await;
    assert_eq!(client.rwlock("page").unwrap().try_read().await.unwrap_err().kind(), ErrorKind::Conflict);
    writer.release().await.unwrap();
    let read = granted(first).await;
    let claims = [(Claim::READER, true), (Claim::MUTEX, false)];
    assert_eq!(shown(&client, "page").await, claims);
    assert_eq!(client.queue(read.name()).await.unwrap().strangers, ["nobody-0000000003"]);
    lab.delete(&mutex).await;
    client.rwlock("page").unwrap().try_read().await.unwrap().release().await.unwrap();

    let seats = client.semaphore("seats", 2).unwrap().permits(2).acquire().await.unwrap();
    let foreign = "seats/_c_9043e340783bca239f63470b2f5c0243-__PERM__1of2__";
    let foreign = lab.put(foreign, CreateMode::PersistentSequential).await;
    let one = taking(&client, "seats", 1, 2);
    lab.until_queued("seats", 3).await;
    let two = taking(&client, "seats", 1, 2);
    lab.until_queued("seats", 4).await;
    seats.release().await.unwrap();
    // The contender that made the node in the middle has a permit.
    let one = granted(one).await;
    let held: Vec<_> = shown(&client, "seats").await.into_iter().map(|(_, granted)| granted).collect();
    assert_eq!(held, [true, true, false]);
    lab.delete(&foreign).await;
    granted(two).await.release().await.unwrap();
    one.release().await.unwrap();
}

#[tokio::test]
async fn a_downgrade_after_the_loss_says_so_and_leaves_nothing() {
    let lab = Lab::new().await;
    for (options, ..) in FAMILIES {
        let client = lab.client(options).await;
        let writer = client.rwlock("page").unwrap().write().await.unwrap();
        let node = lab.children("page").await.remove(0);
        lab.delete(&format!("page/{node}")).await;
        let failed = writer.downgrade_or_keep().await.unwrap_err();
        assert_eq!(failed.error().kind(), ErrorKind::Lost, "{failed}");
        assert_eq!(soon(failed.into_guard().lost()).await, Loss::Removed);
        lab.until_queued("page", 0).await;
    }
}
