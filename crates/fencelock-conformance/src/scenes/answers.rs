//! Requests that are lost or late, or whose answers are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencelock::capability::StoreUrl;
use fencelock::inspect::Claim;
use fencelock::store::{Entry, Opening, Owner, RequestId, Session, open_url};
use fencelock::time::SystemClock;
use fencelock::{ErrorKind, Name};

use super::{LOCK, LOOK_AGAIN, PATIENCE, Stage, contenders, mutex, now, pass, release, until_contenders};
use fencelock_lab::Outage;

/// The number of cuts at random bytes, in addition to the cuts between two fields.
const CUTS: usize = 24;

pub(super) fn an_answer_cut_at_any_byte_leaves_one_place_or_none(stage: &Stage) {
    let mut rng = fastrand::Rng::with_seed(stage.seed);
    let fields = stage.site.answer_fields(LOCK);
    let anywhere = (0..CUTS).map(|_| rng.u64(..Outage::ANSWER_BYTES));
    let cuts: Vec<u64> = fields.iter().copied().chain(anywhere).collect();
    let surely_answered = fields.last().copied().unwrap_or(0);
    assert!(surely_answered < Outage::ANSWER_BYTES, "an answer is {surely_answered} bytes long");
    stage.block_on(async {
        let (client, other) = (stage.connect(0).await, stage.connect(1).await);
        // A client's first acquire gets an answer that later ones do not get, so one acquire comes before the first
        // cut.
        release(mutex(&client).acquire().await.unwrap()).await;
        for (number, after) in cuts.into_iter().enumerate() {
            let before = stage.site.cuts();
            stage.strike(Outage::AnswerCut, 0, after);
            let mutex = mutex(&client);
            if number >= fields.len() && number % 3 == 0 {
                drop(tokio::time::timeout(Duration::from_millis(2), mutex.acquire()).await);
            } else {
                let guard = mutex.acquire().await.unwrap_or_else(|error| panic!("cut after {after} bytes: {error}"));
                if after <= surely_answered {
                    assert!(stage.site.cuts() > before, "nothing was cut after {after} bytes of the answer");
                }
                let there = contenders(&other).await;
                assert_eq!(there, 1, "cut after {after} bytes: there are ghosts");
                // The release's own answer is cut.
                release(guard).await;
            }
            until_contenders(&other, 0).await;
            // A renewal gets the answer that an acquire did not get.
            until_cut(stage, before).await;
        }
    });
}

async fn until_cut(stage: &Stage, before: u64) {
    let start = now();
    while stage.site.cuts() == before {
        assert!(now().since(start) < PATIENCE, "nothing is cut");
        pass(LOOK_AGAIN).await;
    }
}

pub(super) fn a_request_held_back_past_its_withdrawal_never_takes_effect(stage: &Stage) {
    stage.block_on(async {
        let other = stage.connect(1).await;
        for wait in [Duration::from_millis(20), stage.site.ttl() / 2] {
            // Uses the store directly: no other part says when a withdrawal is done.
            let (session, _events) = open(stage).await;
            let entry = entry();
            stage.strike(Outage::WorkerHeldBack, 0, 0);
            let unanswered = tokio::time::timeout(wait, session.enter(Arc::clone(&entry))).await;
            drop(unanswered);
            withdraw(&*session, &entry).await;
            stage.heal();
            let healed = now();
            while now().since(healed) < stage.site.ttl() {
                assert_eq!(contenders(&other).await, 0, "a withdrawn request took effect");
                pass(LOOK_AGAIN).await;
            }
            // A session that was not renewed meanwhile may have ended.
            let _ = session.close().await;
            release(mutex(&other).acquire().await.unwrap()).await;
        }
    });
}

async fn open(stage: &Stage) -> (Arc<dyn Session>, impl Sized + use<>) {
    let url = StoreUrl::parse(&without_timing(&stage.site.url(0))).expect("a URL");
    let store = open_url(url).await.expect("a store");
    let owner = Owner::new(1, "", 0);
    let opening = Opening::here(owner, stage.site.ttl(), Arc::new(SystemClock)).expect("a runtime");
    let opened = store.open(opening).await.expect("a session");
    (opened.session, (opened.events, store))
}

/// A store's own URL has none of the options that the client takes.
fn without_timing(url: &str) -> String {
    let (before, options) = url.split_once('?').unwrap_or((url, ""));
    let rest = options.split('&').filter(|option| !option.starts_with("ttl_ms="));
    format!("{before}?{}", rest.collect::<Vec<_>>().join("&"))
}

fn entry() -> Arc<Entry> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let id = RequestId { client: 1, number: NUMBER.fetch_add(1, Ordering::Relaxed) };
    let name = Name::new(LOCK).expect("a name");
    Arc::new(Entry { name, claim: Claim::MUTEX, id, wait: true, purpose: None })
}

/// Withdraws, as the engine does: until it is done.
async fn withdraw(session: &dyn Session, entry: &Entry) {
    let start = now();
    while let Err(error) = session.withdraw(&entry.name, entry.id).await {
        let over = error.kind() == ErrorKind::Lost;
        assert!(over || now().since(start) < PATIENCE, "the withdrawal does not end: {error}");
        if over {
            return;
        }
        pass(LOOK_AGAIN).await;
    }
}
