//! Grants broken on purpose, of every kind of lock, and of other clients.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::{Client, ErrorKind, Loss, Name};
use fencelock_testbed::Proxy;
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::{Acl, CreateMode};

use crate::kinds::{FAMILIES, shown};
use crate::lab::{Lab, acquired, acquiring, granted, soon, taking, writing};

/// Breaks the grant of the contender at `position`. Returns whether the grant was there.
async fn break_at(client: &Client, name: &str, position: usize, reason: &str) -> bool {
    let name = Name::new(name).unwrap();
    let queue = client.queue(&name).await.unwrap();
    client.break_grant(&name, &queue.contenders[position], reason).await.unwrap()
}

#[tokio::test]
async fn a_break_ends_one_of_several_grants_and_lets_in_whom_it_held_up() {
    let lab = Lab::new().await;
    let (client, operator) = (lab.client("").await, lab.client("").await);
    let lock = client.rwlock("page").unwrap();
    let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let waits = writing(&client, "page");
    lab.until_queued("page", 3).await;
    assert!(break_at(&operator, "page", 0, "stuck").await);
    assert_eq!(soon(one.lost()).await, Loss::Broken);
    let told = one.release().await.unwrap_err();
    assert!(told.kind() == ErrorKind::Lost && told.to_string().contains("stuck"), "{told}");
    assert!(two.check().is_ok() && !waits.is_finished());
    two.release().await.unwrap();
    granted(waits).await.release().await.unwrap();

    let seats = client.semaphore("seats", 3).unwrap().permits(2).acquire().await.unwrap();
    let waits = taking(&client, "seats", 2, 3);
    lab.until_queued("seats", 2).await;
    assert!(break_at(&operator, "seats", 0, "slow").await);
    let next = granted(waits).await;
    assert!(next.token() > seats.token());
    assert_eq!(soon(seats.lost()).await, Loss::Broken);
    let kept = operator.breaks(next.name()).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].claim, kept[0].token, &*kept[0].reason), (Claim::new(2, 3).unwrap(), seats.token(), "slow"));
    assert_eq!(kept[0].owner.as_ref(), Some(client.owner()));
}

#[tokio::test]
async fn a_downgraded_writer_is_broken_by_the_token_of_its_grant() {
    let lab = Lab::new().await;
    for (options, ..) in FAMILIES {
        let (client, operator) = (lab.client(options).await, lab.client(options).await);
        let reader = client.rwlock("page").unwrap().write().await.unwrap().downgrade().await.unwrap();
        assert_eq!(shown(&operator, "page").await, [(Claim::READER, true)]);
        assert!(break_at(&operator, "page", 0, "stuck").await);
        assert_eq!(soon(reader.lost()).await, Loss::Broken);
        lab.until_queued("page", 0).await;
    }
}

#[tokio::test]
async fn a_release_that_comes_after_the_break_says_why() {
    let lab = Lab::new().await;
    let (client, operator) = (lab.client("&layout=shared").await, lab.client("&layout=shared").await);
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    assert!(break_at(&operator, "job", 0, "stuck since noon").await);
    let told = guard.release().await.unwrap_err();
    assert!(told.kind() == ErrorKind::Lost && told.to_string().contains("stuck since noon"), "{told}");
    assert_eq!(operator.breaks(&Name::new("job").unwrap()).await.unwrap().len(), 1);
    assert!(lab.children("").await.is_empty(), "the record is not among the contenders of all locks");
}

#[tokio::test]
async fn another_clients_grant_can_be_broken_and_a_waiter_cannot() {
    let (lab, client) = Lab::with_client().await;
    lab.put("job/_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-", CreateMode::EphemeralSequential).await;
    let waits = acquiring(&client, "job");
    lab.until_queued("job", 2).await;
    let name = Name::new("job").unwrap();
    let queue = client.queue(&name).await.unwrap();
    assert_eq!(client.break_grant(&name, &queue.contenders[1], "x").await.unwrap_err().kind(), ErrorKind::Config);
    assert!(client.break_grant(&name, &queue.contenders[0], "dead").await.unwrap());
    assert!(!client.break_grant(&name, &queue.contenders[0], "dead").await.unwrap(), "it is gone");
    acquired(waits).await.release().await.unwrap();
    assert_eq!(client.breaks(&name).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_last_hundred_records_of_a_name_are_kept_and_no_name_is_listed_for_them() {
    let (_lab, client) = Lab::with_client().await;
    let mutex = client.mutex("a/job").unwrap();
    for number in 0..103 {
        let guard = mutex.acquire().await.unwrap();
        assert!(break_at(&client, "a/job", 0, &format!("reason {number}")).await);
        drop(guard);
    }
    let kept = client.breaks(&Name::new("a/job").unwrap()).await.unwrap();
    let reasons: Vec<_> = kept.iter().map(|order| &*order.reason).collect();
    assert_eq!((reasons.len(), reasons[0], reasons[99]), (100, "reason 3", "reason 102"));
    assert!(client.names("", None, 10).await.unwrap().is_empty());
    let refused = client.mutex("~fencelock").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidName);
}

/// Holds the lock `grants` times as one `Lock` object of kazoo does: always with the same id, and again as soon as its node is
/// gone. Returns the transactions that made the nodes which another client deleted.
async fn kazoo_again_and_again(lab: &Lab, name: &str, grants: usize) -> BTreeSet<u64> {
    let prefix = lab.path(&format!("{name}/94b6e5cf49364b1f8706ee06e5d07c35__lock__"));
    let mut deleted = BTreeSet::new();
    for _ in 0..grants {
        let created = lab.hands.create(&prefix, b"", CreateMode::EphemeralSequential, &[Acl::open()]).await.unwrap();
        let (_, mut watch) = lab.hands.exists_watched(&created.path).await.unwrap();
        soon(watch.fired()).await;
        deleted.insert(created.stat.czxid.unsigned_abs());
    }
    deleted
}

#[tokio::test]
async fn a_break_takes_no_later_grant_of_a_client_that_uses_one_id_for_all_of_them() {
    const BREAKS: usize = 20;
    let lab = Lab::new().await;
    let slow = Proxy::start(shared().address()).unwrap();
    slow.delay(Duration::from_millis(2));
    for (number, dialect) in ["curator", "kazoo"].into_iter().enumerate() {
        let url = lab.url(&format!("&layout={dialect}")).replace(&lab.server.to_string(), &slow.address().to_string());
        let operator = Client::connect(&url).await.unwrap();
        let name = Name::new(format!("job-{number}")).unwrap();
        lab.put(name.as_str(), CreateMode::Persistent).await;
        let is_over = AtomicBool::new(false);
        let holding = async {
            let deleted = kazoo_again_and_again(&lab, name.as_str(), BREAKS).await;
            is_over.store(true, Ordering::Relaxed);
            deleted
        };
        let breaking = async {
            let mut broken = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                let queue = operator.queue(&name).await.unwrap();
                let Some(holder) = queue.contenders.first() else { continue };
                if operator.break_grant(&name, holder, "stuck").await.unwrap() {
                    broken.insert(holder.grant.unwrap().token.unwrap().get());
                }
            }
            broken
        };
        let (deleted, broken) = tokio::join!(holding, breaking);
        assert_eq!(deleted, broken, "what was deleted is what was named");
    }
}

#[tokio::test]
async fn a_break_takes_both_nodes_of_one_grant_and_nothing_else() {
    let (lab, client) = Lab::with_client().await;
    let (id, other) = ("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae", "_c_0b230995-c2bc-4a6c-98b5-6f506fd9afae");
    let writer = lab.put(&format!("page/{id}-__WRIT__"), CreateMode::EphemeralSequential).await;
    // As Curator from 5.5 on does for a writer that reads as well: another id, the same number.
    lab.put(&writer.replace(id, other).replace("__WRIT__", "__READ__"), CreateMode::Ephemeral).await;
    // A thread may wait for two locks of one object: the same id, another number.
    let again = lab.put(&format!("page/{other}-__READ__"), CreateMode::EphemeralSequential).await;
    assert!(break_at(&client, "page", 0, "stuck").await);
    assert_eq!(lab.children("page").await, [again.rsplit_once('/').unwrap().1]);
}
