//! Downgrades that stop half-way, and an operator that deletes the writer's node meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fencelock::inspect::{Claim, Owner};
use fencelock::store::{
    Entered, Entry, GrantId, Left, Opened, Opening, Place, RequestId, SessionEvent, Standing, StoreUrl, open_url,
};
use fencelock::time::SystemClock;
use fencelock::{Error, ErrorKind, Loss, Name};
use fencelock_testbed::zookeeper::shared;
use fencelock_testbed::{Proxy, Way};
use fencelock_zookeeper::{Acl, Permissions};
use futures_util::StreamExt;

use crate::lab::{Lab, soon};

/// A session whose bytes go through a proxy.
pub(crate) struct Near {
    pub(crate) lab: Lab,
    pub(crate) proxy: Proxy,
    pub(crate) opened: Opened,
}

impl Near {
    async fn new() -> Self {
        Self::by(shared().address()).await
    }

    /// The same, through the address `way`, which leads to the server.
    pub(crate) async fn by(way: SocketAddr) -> Self {
        let (lab, proxy) = (Lab::new().await, Proxy::start(way).unwrap());
        let url = format!("zk://{}{}?tick_ms=500", proxy.address(), lab.parent);
        let store = open_url(StoreUrl::parse(&url).unwrap()).await.unwrap();
        let owner = Owner::new(7, "near", 1);
        let opened =
            store.open(Opening::here(owner, Duration::from_secs(60), Arc::new(SystemClock)).unwrap()).await.unwrap();
        Self { lab, proxy, opened }
    }

    /// A writer of `name`.
    async fn writer(&self, name: &str, number: u64) -> Box<dyn Place> {
        self.place(name, Claim::WRITER, number).await.unwrap()
    }

    pub(crate) async fn place(&self, name: &str, claim: Claim, number: u64) -> Result<Box<dyn Place>, Error> {
        let (name, id) = (Name::new(name).unwrap(), RequestId { client: 7, number });
        let entry = Entry { name, claim, id, wait: true, purpose: None };
        match soon(self.opened.session.enter(Arc::new(entry))).await? {
            Entered::In(place) => Ok(place),
            Entered::Busy | Entered::Conflict(_) => panic!("the lock is free"),
        }
    }

    /// Deletes the first node of `name` by hand.
    async fn delete_first(&self, name: &str) {
        let node = self.lab.children(name).await.remove(0);
        self.lab.delete(&format!("{name}/{node}")).await;
    }

    /// Waits until `name` has nodes of which `fit` is true.
    async fn until(&self, name: &str, fit: impl Fn(&[String]) -> bool) {
        soon(async {
            while !fit(&self.lab.children(name).await) {
                crate::lab::pause().await;
            }
        })
        .await;
    }
}

/// Makes `place` a reader's, however often that fails for a passing reason.
async fn lighten(place: &mut Box<dyn Place>) -> Result<(), ErrorKind> {
    soon(async {
        loop {
            match place.lighten(Claim::READER).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_retryable() => crate::lab::pause().await,
                Err(error) => return Err(error.kind()),
            }
        }
    })
    .await
}

fn is_reader(node: &str) -> bool {
    node.contains("__READ__")
}

#[tokio::test]
async fn a_writer_whose_downgrade_was_refused_still_notices_the_end_of_its_node() {
    let (lab, client) = Lab::with_client().await;
    let writer = client.rwlock("page").unwrap().write().await.unwrap();
    let acl = Acl { permissions: Permissions::DELETE, ..Acl::open() };
    let acl = [acl, Acl { permissions: Permissions::READ, ..Acl::open() }];
    lab.hands.set_acl(&lab.path("page"), &acl, None).await.unwrap();
    let failed = soon(writer.downgrade_or_keep()).await.unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::Denied, "{failed}");
    let guard = failed.into_guard();
    assert!(guard.check().is_ok());
    let node = lab.children("page").await.remove(0);
    lab.delete(&format!("page/{node}")).await;
    assert_eq!(soon(guard.lost()).await, Loss::Removed);
}

#[tokio::test]
async fn a_lighter_node_made_after_the_end_of_the_place_does_not_outlive_its_leaving() {
    let mut near = Near::new().await;
    let mut place = near.writer("page", 1).await;
    near.delete_first("page").await;
    let event = soon(near.opened.events.next()).await;
    let Standing::Granted(grant) = place.standing() else { panic!("{:?}", place.standing()) };
    let gone = GrantId { place: place.id(), token: grant.token };
    assert_eq!(event, Some(SessionEvent::Gone(gone, Loss::Removed)));
    near.proxy.hold(Way::Down);
    tokio::select! {
        lightened = place.lighten(Claim::READER) => panic!("no answer comes: {lightened:?}"),
        () = near.until("page", |nodes| nodes.len() == 1) => {}
    }
    near.proxy.release();
    soon(place.leave()).await.unwrap();
    assert!(near.lab.children("page").await.is_empty());
}

#[tokio::test]
async fn a_downgrade_dropped_once_the_writers_node_is_gone_is_gone_on_with() {
    let near = Near::new().await;
    let mut place = near.writer("page", 1).await;
    let token = place.standing();
    near.proxy.delay(Duration::from_millis(300));
    tokio::select! {
        lightened = place.lighten(Claim::READER) => lightened.unwrap(),
        () = near.until("page", |nodes| nodes.iter().all(|node| is_reader(node))) => {}
    }
    near.proxy.heal();
    assert_eq!(lighten(&mut place).await, Ok(()));
    assert_eq!(place.standing(), token);
    assert!(matches!(token, Standing::Granted(_)));
    assert_eq!(near.lab.children("page").await.len(), 1);
    assert_eq!(soon(place.leave()).await.unwrap(), Left::Released);
    assert!(near.lab.children("page").await.is_empty());
}

#[tokio::test]
async fn a_writer_that_lost_its_node_before_the_lighter_one_was_made_holds_nothing_wherever_the_replies_are_cut() {
    let near = Near::new().await;
    for cut in (0..360).step_by(12) {
        let name = format!("page-{cut}");
        let mut place = near.writer(&name, cut + 1).await;
        // This deletion would have granted a writer behind it.
        near.delete_first(&name).await;
        near.proxy.cut_after(cut, Way::Down);
        let lightened = lighten(&mut place).await;
        near.proxy.heal();
        assert_eq!(lightened, Err(ErrorKind::Lost), "cut after {cut} bytes");
        assert!(near.lab.children(&name).await.is_empty(), "cut after {cut} bytes");
    }
}
