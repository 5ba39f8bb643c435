//! How many waiters look when a holder departs: the ones let in, and one more at most, whatever the processes. Quiet is judged by time.

use tokio::task::JoinSet;

use super::*;

/// A queue of processes, each with one contender that waits in a task of its own and stays once it is granted.
struct Crowd {
    holder: Box<dyn Place>,
    clients: Vec<Client>,
    waiting: JoinSet<Box<dyn Place>>,
}

impl Crowd {
    /// Behind `holder` these wait, in this order, one in every `processes` in a process of its own.
    async fn gather(directory: &TempDir, holder: Claim, waiters: &[Claim], processes: usize) -> Self {
        let stores: Vec<_> = (0..processes).map(|_| store(directory)).collect();
        let mut clients: Vec<_> = stores.iter().map(Client::on).collect();
        let holder = clients[0].enter("job", holder).await;
        let mut waiting = JoinSet::new();
        for (number, claim) in waiters.iter().enumerate() {
            let mut place = clients[number % processes].enter("job", *claim).await;
            waiting.spawn(async move {
                place.next(Moment::NEVER).await.unwrap();
                place
            });
        }
        let mut crowd = Self { holder, clients, waiting };
        while crowd.looks() < waiters.len() as u64 {
            tokio::task::yield_now().await;
        }
        crowd.settle().await;
        crowd
    }

    /// How often any of them looked at the store so far, but for looks after a long silence.
    fn looks(&self) -> u64 {
        self.clients.iter().map(|client| client.core.looks.load(Ordering::SeqCst)).sum()
    }

    /// Waits until all waiters have stopped looking: for a moment only, as no event says that nothing more will come.
    async fn settle(&mut self) {
        let mut before = u64::MAX;
        while std::mem::replace(&mut before, self.looks()) != before {
            SystemClock.sleep_until(SystemClock.now().after(Duration::from_millis(150))).await;
        }
    }

    /// The holder leaves; demands that `lets_in` waiters are granted, and that hardly more of them look.
    async fn release(&mut self, lets_in: usize) {
        let before = self.looks();
        self.holder.leave().await.unwrap();
        for _ in 0..lets_in {
            self.holder = self.waiting.join_next().await.unwrap().unwrap();
            token(&*self.holder);
        }
        self.settle().await;
        let looked = self.looks() - before;
        assert!(self.waiting.try_join_next().is_none());
        assert!(looked <= lets_in as u64 + 1, "a departure that let {lets_in} in made {looked} look");
    }
}

fn permits(count: u32) -> Claim {
    Claim::new(count, 4).unwrap()
}

#[tokio::test]
async fn a_writer_that_gets_its_turn_wakes_none_of_the_readers_behind_it() {
    for processes in [1, 4] {
        let directory = directory();
        let mut waiters = vec![Claim::READER; 13];
        waiters[0] = Claim::WRITER;
        waiters[8] = Claim::WRITER;
        let mut crowd = Crowd::gather(&directory, Claim::READER, &waiters, processes).await;
        crowd.release(1).await;
        crowd.release(7).await;
    }
}

#[tokio::test]
async fn permits_wake_those_they_let_in_and_one_more() {
    for processes in [1, 4] {
        let directory = directory();
        let waiters = [1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1].map(permits);
        let mut crowd = Crowd::gather(&directory, permits(4), &waiters, processes).await;
        crowd.release(2).await;
    }
}

#[tokio::test]
async fn a_mutex_wakes_the_next_one() {
    for processes in [1, 4] {
        let directory = directory();
        let mut crowd = Crowd::gather(&directory, Claim::MUTEX, &[Claim::MUTEX; 8], processes).await;
        for _ in 0..8 {
            crowd.release(1).await;
        }
    }
}
