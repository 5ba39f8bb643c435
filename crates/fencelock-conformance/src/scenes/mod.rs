//! Scenes: a single fault at one moment, and the view of a lock's users is exactly as promised.
//!
//! A scene is a function over a [`Stage`], named by the sentence that it shows, and fails by a panic. A scene runs on every store
//! whose [`Site`] can do what the scene [`needs`](Scene::needs); `scenes!` makes a test of each.

mod answers;
mod crowd;
mod cuts;
mod dropped;
mod holder;
mod processes;
mod servers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencelock::time::{Clock, Moment, SystemClock};
use fencelock::{Client, Guard, GuardState, Mutex, Name};
use tokio::task::JoinHandle;

pub use self::holder::holder_main;
pub use self::processes::{Takeover, takeover};
use fencelock_lab::{Outage, Site};

/// The store, the programs and the directory of a scene.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The store, and its outages.
    pub site: Arc<dyn Site>,
    /// The binary that calls [`holder_main`].
    pub holder: PathBuf,
    /// An empty directory.
    pub directory: PathBuf,
    /// The seed of the scene's random choices.
    pub seed: u64,
}

/// A scene.
#[derive(Clone, Copy)]
pub struct Scene {
    /// The scene as a sentence, in words joined by underscores.
    pub name: &'static str,
    /// The outages that the site has to be able to make.
    pub needs: &'static [Outage],
    /// Plays the scene.
    pub run: fn(&Stage),
}

/// Passes the list of all scenes, each with its needs, to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! with_scenes {
    ($then:ident $arguments:tt) => {
        $crate::$then! { $arguments [
            cuts::a_client_cut_for_less_than_its_session_keeps_its_lock [WorkerCut],
            cuts::a_client_cut_beyond_its_session_is_notified_before_a_rival_is_granted [WorkerCut],
            cuts::a_client_whose_answers_are_swallowed_is_notified_before_a_rival_is_granted [WorkerHoled],
            cuts::a_lock_outlives_a_restart_of_every_connection [ConnectionsReset],
            servers::a_held_lock_outlives_its_leader [LeaderKilled],
            servers::a_held_lock_outlives_a_restart_of_every_server [ServerRestarted],
            processes::a_killed_holder_is_followed_within_the_ttl_and_the_slack [],
            processes::a_holder_stopped_past_its_session_knows_at_its_first_look_and_its_late_writes_are_refused [WorkerCut],
            answers::an_answer_cut_at_any_byte_leaves_one_place_or_none [AnswerCut],
            answers::a_request_held_back_past_its_withdrawal_never_takes_effect [WorkerHeldBack],
            dropped::an_acquire_dropped_at_any_await_leaves_nothing [],
            dropped::an_acquire_dropped_at_any_await_while_it_waits_leaves_nothing [],
            crowd::a_crowd_of_waiters_is_served_in_order_through_a_reset_of_all_connections [ConnectionsReset],
        ] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __scene_list {
    (() [$($group:ident :: $scene:ident [$($need:ident)*],)*]) => {
        &[$($crate::scenes::Scene {
            name: stringify!($scene),
            needs: &[$(fencelock_lab::Outage::$need),*],
            run: $group::$scene,
        }),*]
    };
}

/// Every scene.
#[must_use]
pub fn scenes() -> &'static [Scene] {
    crate::with_scenes!(__scene_list())
}

/// Plays the scene `name`.
///
/// # Panics
/// When the store breaks the promise of the scene, or when the site lacks a fault that the scene needs.
pub fn play(name: &str, stage: &Stage) {
    let Some(scene) = scenes().iter().find(|scene| scene.name == name) else { panic!("there is no scene {name}") };
    for need in scene.needs {
        assert!(stage.site.can(*need), "{name} needs {need:?}, which this site cannot do");
    }
    let _on_panic = Again(stage.seed);
    (scene.run)(stage);
}

/// Prints the seed of a failed scene when it is dropped.
struct Again(u64);

impl Drop for Again {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again: FENCELOCK_SEED={}", self.0);
        }
    }
}

impl AsRef<Self> for Stage {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A `#[test]` for every scene: `scenes!(factory)`, where `factory()` makes a [`Stage`], or something that holds one
/// ([`AsRef`]) together with other values that must live as long.
#[macro_export]
macro_rules! scenes {
    ($factory:expr) => {
        $crate::with_scenes!(__scene_tests($factory));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __scene_tests {
    (($factory:expr) [$($group:ident :: $scene:ident [$($need:ident)*],)*]) => {
        $(
            #[test]
            fn $scene() {
                $crate::scenes::play(stringify!($scene), ($factory)().as_ref());
            }
        )*
    };
}

/// How long a scene waits for an event that must come. A server that writes waits for a busy disk, too.
const PATIENCE: Duration = Duration::from_secs(180);

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The length of a session whose end is no part of a scene, in sessions of the site: a busy machine may renew a short one too
/// late.
const LONG: u32 = 3;

/// The lock that all scenes are about.
const LOCK: &str = "lock";

impl Stage {
    /// Runs `scene` on a runtime of its own.
    fn block_on<T>(&self, scene: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let output = runtime.block_on(scene);
        runtime.shutdown_background();
        output
    }

    async fn connect(&self, client: usize) -> Client {
        self.connect_for(1, client).await
    }

    /// A client with a session `sessions` times as long as the site's.
    async fn connect_for(&self, sessions: u32, client: usize) -> Client {
        // A busy machine may let a single attempt run out of time.
        let builder = Client::builder().ttl(self.site.ttl() * sessions).connect_timeout(PATIENCE);
        builder.connect(&self.site.url(client)).await.expect("a client")
    }

    fn strike(&self, outage: Outage, client: usize, random: u64) {
        self.site.strike(outage, client, random).expect("an outage");
    }

    fn heal(&self) {
        self.site.heal().expect("a store that comes back");
    }
}

fn mutex(client: &Client) -> Mutex {
    client.mutex(LOCK).expect("a name")
}

fn now() -> Moment {
    SystemClock.now()
}

async fn pass(duration: Duration) {
    SystemClock.sleep_until(now().after(duration)).await;
}

/// A rival that waits for the lock, and the moment of its grant.
fn rival(client: &Client) -> JoinHandle<(Guard, Moment)> {
    let mutex = mutex(client);
    tokio::spawn(async move {
        let guard = mutex.acquire().await.expect("a grant for the rival");
        (guard, now())
    })
}

/// Checks for `duration` that `guard` holds the lock, and then releases the lock to the rival that waits.
async fn is_kept_for(duration: Duration, guard: Guard, waiting: JoinHandle<(Guard, Moment)>) {
    let start = now();
    while now().since(start) < duration {
        guard.check().unwrap();
        pass(LOOK_AGAIN).await;
    }
    assert_eq!(guard.state(), GuardState::Held);
    assert!(!waiting.is_finished(), "the rival was granted while another held");
    let token = guard.token();
    release(guard).await;
    let (granted, _) = waiting.await.unwrap();
    assert!(granted.token() > token);
    release(granted).await;
}

/// Releases the lock, and repeats the release where no answer comes in time: after an outage, or on a busy machine. A release that fails
/// keeps its guard for the next attempt.
async fn release<K>(mut guard: Guard<K>) {
    let start = Instant::now();
    while let Err(failed) = guard.release_or_keep().await {
        assert!(failed.error().is_retryable() && start.elapsed() < PATIENCE, "a release: {failed}");
        guard = failed.into_guard();
    }
}

/// How many contenders there are.
async fn contenders(client: &Client) -> usize {
    let name = Name::new(LOCK).expect("a name");
    let start = Instant::now();
    loop {
        match client.queue(&name).await {
            Ok(queue) => return queue.contenders.len(),
            Err(error) if error.is_retryable() && start.elapsed() < PATIENCE => {}
            Err(error) => panic!("looking at the queue: {error}"),
        }
    }
}

/// Waits until there are `count` contenders.
async fn until_contenders(client: &Client, count: usize) {
    let start = Instant::now();
    loop {
        let there = contenders(client).await;
        if there == count {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{there} contenders instead of {count}, and that does not change");
        pass(LOOK_AGAIN).await;
    }
}
