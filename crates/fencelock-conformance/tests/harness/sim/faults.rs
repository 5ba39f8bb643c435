//! The faults of a run, which the seed draws: faults of the way to the store, of processes, and of the store itself.

use std::sync::Arc;
use std::time::Duration;

use fencelock::memory::{MemoryStore, Operation};
use fencelock::store::{Contender, Page, PlaceId};
use fencelock::{Client, FencingToken, Io};

use super::World;
use super::hosts::HostId;

/// The longest ttl of a run, and some slack: by that time every holder has noticed that its lease ended early.
const NOTICED_LATE: Duration = Duration::from_secs(11);
/// The time in which a holder notices that, if no other fault delays the message.
const NOTICED_SOON: Duration = Duration::from_millis(10);

const OPERATIONS: [Operation; 9] = [
    Operation::Open,
    Operation::Enter,
    Operation::Withdraw,
    Operation::Renew,
    Operation::Lighten,
    Operation::Watch,
    Operation::Leave,
    Operation::Contention,
    Operation::Other,
];

/// A process, and its way to the store.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) host: HostId,
    pub(crate) store: MemoryStore,
}

impl Member {
    /// Ends all faults.
    pub(crate) fn heal(&self, world: &World) {
        world.orders.resume(self.host);
        self.store.slow_renewals(Duration::ZERO);
        self.store.heal();
    }
}

/// Draws a fault again and again. Faults overlap.
pub(crate) async fn faults(world: Arc<World>, mut rng: fastrand::Rng) {
    let store = world.store.another_process();
    let client = Client::builder().io(Io::CurrentRuntime).connect_store(store).await.expect("no fault is on this way");
    // Half of the runs have only faults that excuse no pair of believers; three in eight have only the other faults.
    let (kinds, noticed) = match rng.usize(..8) {
        0 => (0..15, NOTICED_LATE),
        1 | 2 => (9..13, NOTICED_SOON),
        3 => (13..15, NOTICED_LATE),
        _ => (0..9, NOTICED_LATE),
    };
    let every = rng.u64(1_000..20_000);
    loop {
        world.pass(Duration::from_millis(rng.u64(..every))).await;
        let fault = Fault { world: Arc::clone(&world), client: client.clone(), rng: rng.fork(), noticed };
        tokio::spawn(fault.strike(rng.usize(kinds.clone())));
    }
}

struct Fault {
    world: Arc<World>,
    client: Client,
    rng: fastrand::Rng,
    /// The time in which a holder notices that its lease ended early.
    noticed: Duration,
}

impl Fault {
    async fn strike(mut self, kind: usize) {
        let members = self.world.members();
        let member = members[self.rng.usize(..members.len())].clone();
        match kind {
            0 => self.stop(&member).await,
            1 => self.cut(&[member], "is cut off").await,
            2 => self.cut(&members, "are cut off together").await,
            3 => self.crash(&member),
            4 => self.lose_answers(&member),
            5 | 6 => self.delay(&member).await,
            7 => self.slow_renewals(&member).await,
            8 => self.answer_late(&member).await,
            9 => self.end_sessions(&[member]),
            10 => self.end_sessions(&members),
            11 | 12 => self.take(kind == 11, false).await,
            _ => self.take_unanswered(&member, kind == 13).await,
        }
    }

    /// Up to two and a half of the longest ttls; short times are as likely as long ones.
    fn time(&mut self) -> Duration {
        let most = [300, 3_000, 25_000][self.rng.usize(..3)];
        Duration::from_millis(self.rng.u64(1..most))
    }

    fn note(&self, what: &str, member: &Member) {
        self.world.record().fault(&format!("process {} {what}", member.host));
    }

    /// The process stands still, as one that is stopped or swapped out, and continues.
    async fn stop(&mut self, member: &Member) {
        self.note("stands still", member);
        self.world.orders.stop(member.host);
        let time = self.time();
        self.world.pass(time).await;
        self.note("continues", member);
        self.world.orders.resume(member.host);
    }

    async fn cut(&mut self, members: &[Member], what: &str) {
        for member in members {
            self.note(what, member);
            member.store.partition();
        }
        let time = self.time();
        self.world.pass(time).await;
        for member in members {
            self.note("is reachable", member);
            member.store.heal();
        }
    }

    /// The process ends without a word; another one starts.
    fn crash(&mut self, member: &Member) {
        self.note("crashes", member);
        member.store.crash();
        self.world.orders.kill(member.host);
        self.world.replace(member.host, self.rng.fork());
    }

    fn lose_answers(&mut self, member: &Member) {
        for _ in 0..self.rng.usize(1..6) {
            let operation = OPERATIONS[self.rng.usize(..OPERATIONS.len())];
            self.note(&format!("gets no answer to {operation:?}"), member);
            member.store.lose_next_reply(operation);
        }
    }

    /// Requests arrive late, in another order, or never.
    async fn delay(&mut self, member: &Member) {
        let mut delays = tokio::task::JoinSet::new();
        for _ in 0..self.rng.usize(1..12) {
            let operation = OPERATIONS[self.rng.usize(..OPERATIONS.len())];
            let (time, arrives) = (self.time() / 4, self.rng.usize(..4) > 0);
            let (late, world) = (member.store.delay_next(operation), Arc::clone(&self.world));
            delays.spawn(async move {
                late.caught().await;
                world.pass(time).await;
                let has_effect = arrives && late.release();
                world.record().fault(&format!("{operation:?} was held back, took effect: {has_effect}"));
            });
        }
        // A trap that has caught nothing until that time is removed.
        tokio::select! {
            biased;
            () = async { while delays.join_next().await.is_some() {} } => {}
            () = self.world.pass(Duration::from_secs(30)) => {}
        }
    }

    /// An answer arrives late, and the process is cut off then. Until the answer arrives, the process stands still.
    async fn answer_late(&mut self, member: &Member) {
        let operation = [Operation::Renew, Operation::Renew, Operation::Enter, Operation::Leave][self.rng.usize(..4)];
        let request = member.store.delay_next(operation);
        tokio::select! {
            biased;
            () = request.caught() => {}
            () = self.world.pass(Duration::from_secs(30)) => return,
        }
        self.note(&format!("gets its answer to {operation:?} late"), member);
        self.world.orders.stop(member.host);
        request.release();
        let time = self.time() / 3;
        self.world.pass(time).await;
        self.world.orders.resume(member.host);
        self.cut(std::slice::from_ref(member), "is cut off").await;
    }

    async fn slow_renewals(&mut self, member: &Member) {
        let time = self.time() / 4;
        self.note(&format!("renews {time:?} late"), member);
        member.store.slow_renewals(time);
        let time = self.time();
        self.world.pass(time).await;
        member.store.slow_renewals(Duration::ZERO);
    }

    /// The store forgets the sessions: all of them when it starts again without its memory.
    fn end_sessions(&mut self, members: &[Member]) {
        for member in members {
            let line = format!("the store ends the sessions of process {}", member.host);
            self.world.record().lapse(&line, self.noticed);
            member.store.expire_sessions();
        }
    }

    /// An operator breaks a grant, or a program deletes a place: any one, or the newest.
    async fn take(&mut self, is_break: bool, is_newest: bool) {
        let mut places = Vec::new();
        for lock in &self.world.locks {
            let Ok(queue) = self.client.queue_page(&lock.name, Page::ALL).await else { return };
            let is_meant = |contender: &Contender| contender.grant.is_some() || !is_break;
            places.extend(queue.contenders.into_iter().filter(is_meant).map(|contender| (lock, contender)));
        }
        if places.is_empty() {
            return;
        }
        places.sort_by_key(|(_, contender)| contender.since);
        let at = if is_newest { places.len() - 1 } else { self.rng.usize(..places.len()) };
        let (lock, contender) = places.swap_remove(at);
        let line = format!("request {} for {} is taken", contender.id.number, lock.name);
        let token = contender.grant.and_then(|grant| grant.token).map(FencingToken::to_i64);
        let newly_taken = token.filter(|token| self.world.record().taken.insert(*token));
        let lapse = match contender.grant {
            Some(_) => Some(self.world.record().lapse(&line, self.noticed)),
            None => {
                self.world.record().fault(&line);
                None
            }
        };
        let was_there = if is_break {
            let broken = self.client.break_grant(&lock.name, &contender, "the seed says so").await;
            // No fault is on the way of this client.
            broken.unwrap_or_else(|error| {
                self.world.record().fail(format!("a break failed: {error:?}"));
                true
            })
        } else {
            self.world.store.remove(&PlaceId { name: lock.name.parse().unwrap(), request: contender.id })
        };
        // A place that left before was not taken: that excuses no pair of believers.
        if let Some(lapse) = lapse.filter(|_| !was_there) {
            let mut record = self.world.record();
            record.history.lapses.retain(|other| other.from != lapse);
            record.taken.retain(|token| Some(*token) != newly_taken);
        }
    }

    /// An entry gets no answer, and its place is taken before the process, which stands still, enters again. Its message arrives with
    /// another place of the same request.
    async fn take_unanswered(&mut self, member: &Member, is_break: bool) {
        let entry = member.store.delay_next(Operation::Enter);
        tokio::select! {
            biased;
            () = entry.caught() => {}
            () = self.world.pass(Duration::from_secs(30)) => return,
        }
        // The second try, some 20 ms later, gets no answer, and the third one waits for 30 ms.
        member.store.lose_next_reply(Operation::Enter);
        drop(entry);
        self.world.pass(Duration::from_millis(25)).await;
        self.note("stands still behind an entry without an answer", member);
        self.world.orders.stop(member.host);
        self.world.pass(Duration::from_millis(100)).await;
        self.take(is_break, true).await;
        self.world.orders.resume(member.host);
    }
}
