//! The notifications of departures, on any store whose server counts them. A departure causes a wake-up for each
//! contender that it grants, and one more at most.

use std::collections::VecDeque;
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::{AnyGuard, Client, Error, Name};
use tokio::task::JoinHandle;

use crate::lab::soon;

/// The most holders that a waiter watches one by one.
const WATCHED: u32 = 64;

/// Notifications that wake no contender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Besides {
    /// The notifications of a departure to its own contender.
    pub(crate) departing: u64,
    /// Whether a holder's departure notifies contenders that watched it earlier and were granted by other departures.
    pub(crate) watched_before: bool,
}

/// A queue of contenders in several sessions, and its allowed notifications.
struct Line<'a> {
    clients: &'a [Client],
    name: Name,
    held: Vec<AnyGuard>,
    waiting: VecDeque<JoinHandle<Result<AnyGuard, Error>>>,
    /// The number of notifications that all departures so far may have caused.
    bound: u64,
    besides: Besides,
}

async fn take(client: Client, name: Name, claim: Claim) -> Result<AnyGuard, Error> {
    Ok(match claim {
        Claim::MUTEX => client.mutex(&name)?.acquire().await?.into_any(),
        Claim::READER => client.rwlock(&name)?.read().await?.into_any(),
        Claim::WRITER => client.rwlock(&name)?.write().await?.into_any(),
        _ => client.semaphore(&name, claim.capacity())?.permits(claim.weight()).acquire().await?.into_any(),
    })
}

impl<'a> Line<'a> {
    /// Queues `claims` in this order. The first `holders` of them are granted at once.
    async fn queue(clients: &'a [Client], besides: Besides, name: &str, claims: &[Claim], holders: usize) -> Self {
        let name = Name::new(name).unwrap();
        let mut line = Self { clients, name, held: Vec::new(), waiting: VecDeque::new(), bound: 0, besides };
        for (claim, client) in claims.iter().zip(clients.iter().cycle()) {
            line.waiting.push_back(tokio::spawn(take(client.clone(), line.name.clone(), *claim)));
            line.until_queued(line.waiting.len()).await;
        }
        line.let_in(holders).await;
        line
    }

    async fn until_queued(&self, count: usize) {
        soon(async {
            while self.clients[0].queue(&self.name).await.unwrap().contenders.len() != count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }

    async fn let_in(&mut self, count: usize) {
        for next in self.waiting.drain(..count) {
            self.held.push(soon(next).await.unwrap().unwrap());
        }
    }

    /// The holder that was granted last departs, which grants `lets_in` contenders.
    async fn release(&mut self, lets_in: usize) {
        self.held.pop().expect("a holder").release().await.unwrap();
        self.let_in(lets_in).await;
        self.bound += lets_in as u64 + 1 + self.besides.departing;
    }

    /// The first waiter gives up, which grants `lets_in` contenders.
    async fn give_up(&mut self, lets_in: usize) {
        self.waiting.pop_front().expect("a waiter").abort();
        self.let_in(lets_in).await;
        self.bound += lets_in as u64 + 1 + self.besides.departing;
    }

    /// All contenders depart, in the order of the line.
    async fn empty(mut self, told: impl Fn() -> u64, before: u64) {
        while !self.held.is_empty() {
            self.release(0).await;
        }
        assert!(self.waiting.is_empty());
        self.until_queued(0).await;
        let told = told() - before;
        println!("{}: {told} told, {} at most", self.name, self.bound);
        assert!(told <= self.bound, "{}: {told} were told, {} at most have to be", self.name, self.bound);
    }
}

fn permits(count: u32, capacity: u32) -> Claim {
    Claim::new(count, capacity).unwrap()
}

/// Each of `clients` is a session of its own. `told` returns the number of the server's notifications so far.
pub(crate) async fn departures_tell_whom_they_let_in_and_one_more(
    clients: &[Client],
    told: impl Fn() -> u64,
    besides: Besides,
) {
    mutexes(clients, &told, besides).await;
    readers_and_writers(clients, &told, besides).await;
    a_writer_that_gives_up(clients, &told, besides).await;
    seats(clients, &told, besides, 4).await;
    // More holders than are looked at one by one.
    seats(clients, &told, besides, 70).await;
}

async fn mutexes(clients: &[Client], told: impl Fn() -> u64, besides: Besides) {
    let mut line = Line::queue(clients, besides, "job", &[Claim::MUTEX; 10], 1).await;
    let before = told();
    for _ in 0..9 {
        line.release(1).await;
    }
    line.empty(told, before).await;
}

async fn readers_and_writers(clients: &[Client], told: impl Fn() -> u64, besides: Besides) {
    let mut claims = [Claim::READER; 14];
    claims[0] = Claim::WRITER;
    claims[9] = Claim::WRITER;
    let mut line = Line::queue(clients, besides, "page", &claims, 1).await;
    let before = told();
    line.release(8).await;
    for _ in 0..7 {
        line.release(0).await;
    }
    line.release(1).await;
    line.release(4).await;
    line.empty(told, before).await;
}

async fn a_writer_that_gives_up(clients: &[Client], told: impl Fn() -> u64, besides: Besides) {
    let mut claims = [Claim::READER; 9];
    claims[1] = Claim::WRITER;
    claims[7] = Claim::WRITER;
    let mut line = Line::queue(clients, besides, "book", &claims, 1).await;
    let before = told();
    line.give_up(5).await;
    line.give_up(1).await;
    line.empty(told, before).await;
}

async fn seats(clients: &[Client], told: impl Fn() -> u64, besides: Besides, count: u32) {
    let (some, name) = (permits(1, count), format!("seats-{count}"));
    let holders = count as usize;
    let mut line = Line::queue(clients, besides, &name, &vec![some; holders + 6], holders).await;
    let before = told();
    for _ in 0..6 {
        line.release(1).await;
    }
    if besides.watched_before && count <= WATCHED {
        line.bound += 6 * u64::from(count - 1);
    }
    line.empty(told, before).await;
}
