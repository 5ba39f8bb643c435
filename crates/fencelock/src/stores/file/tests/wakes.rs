//! Contenders that must delay no other: a client that dies before its grant is marked, and a place that is never polled.

use super::*;

fn permits(count: u32) -> Claim {
    Claim::new(count, 4).unwrap()
}

#[tokio::test]
async fn a_holder_that_dies_between_its_grant_and_its_mark_delays_no_waiter() {
    let directory = directory();
    let stores = [store(&directory), store(&directory), store(&directory)];
    let [mut holds, mut dies, mut waits] = [0, 1, 2].map(|number| Client::on(&stores[number]));
    let mut held = holds.enter("seats", permits(4)).await;
    // The client never looks at its place, so nothing marks the grant that the departure of the holder means.
    let unmarked = dies.enter("seats", permits(4)).await;
    let mut last = waits.enter("seats", permits(2)).await;
    held.leave().await.unwrap();
    last.next(SystemClock.now()).await.unwrap();
    assert!(self::waits(&*last), "all permits belong to the one that is about to die");
    dies.core.drop_session();
    granted(&mut last).await;
    drop(unmarked);
}

/// Waits until a place listens, and leaves it.
async fn listens(place: &mut Box<dyn Place>) {
    let mut next = place.next(Moment::NEVER);
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx).is_pending())).await;
    assert!(polled, "no place has left yet");
}

#[tokio::test]
async fn an_unpolled_reader_delays_no_reader_behind_it() {
    for (is_writer_ours, is_client_same) in [(false, false), (false, true), (true, false), (true, true)] {
        let directory = directory();
        let (near, far) = (store(&directory), store(&directory));
        let mut writing = Client::on(if is_writer_ours { &near } else { &far });
        let mut held = writing.enter("job", Claim::WRITER).await;
        let (mut leaving, mut other) = (Client::on(&near), Client::on(&near));
        let mut left = leaving.enter("job", Claim::READER).await;
        let mut place = (if is_client_same { &mut leaving } else { &mut other }).enter("job", Claim::READER).await;
        listens(&mut left).await;
        listens(&mut place).await;
        held.leave().await.unwrap();
        granted(&mut place).await;
        assert!(waits(&*left), "it was not asked");
        granted(&mut left).await;
    }
}

/// The system's clock, on which no sleeper wakes up.
#[derive(Debug)]
struct Endless;

impl Clock for Endless {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, _: Moment) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// The end of a holder's place.
#[derive(Debug, Clone, Copy)]
enum End {
    Leave,
    Withdrawal,
    Close,
    Break,
    /// By hand; its next renewal misses it.
    Removal,
}

/// A holder and a waiter of another process, which receives only its events.
struct Pair {
    directory: TempDir,
    holding: Client,
    held: Box<dyn Place>,
    /// Its session must live as long as its place.
    _waiting: Client,
    waiter: tokio::task::JoinHandle<Box<dyn Place>>,
}

impl Pair {
    async fn meet(with_note: bool) -> Self {
        let directory = directory();
        let (near, far) = (store(&directory), store(&directory));
        let (mut holding, mut waiting) = (Client::on(&near), Client::with_clock(&far, Arc::new(Endless)));
        let held = holding.enter("job", Claim::MUTEX).await;
        if with_note {
            note(&near, &*held).await;
        }
        let mut place = waiting.enter("job", Claim::MUTEX).await;
        let waiter = tokio::spawn(async move {
            place.next(Moment::NEVER).await.unwrap();
            place
        });
        while waiting.core.looks.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        Self { directory, holding, held, _waiting: waiting, waiter }
    }

    async fn end(&mut self, end: End) {
        let session = &self.holding.session;
        let id = self.held.id();
        match end {
            End::Leave => drop(self.held.leave().await.unwrap()),
            End::Withdrawal => session.withdraw(&id.name, id.request).await.unwrap(),
            End::Close => session.close().await.unwrap(),
            End::Break => {
                let store = store(&self.directory);
                let by = Owner { client: 1, host: "here".to_owned(), pid: 1 };
                let token = crate::token::FencingToken::new(token(&*self.held));
                let (claim, reason, at) = (Claim::MUTEX, "a test".into(), SystemTime::now());
                let order = Break { place: id, token, claim, owner: None, by, reason, at };
                assert!(store.break_grant(&order).await.unwrap());
            }
            End::Removal => {
                super::renewals::remove_ticket(&self.directory, &self.holding, &*self.held);
                assert_eq!(session.renew(&[id]).await.unwrap().gone.len(), 1);
            }
        }
    }
}

/// Writes a note on a lock that is held.
async fn note(store: &FileStore, held: &dyn Place) {
    let order = super::notes::order(held, Some("done"), None);
    assert!(store.write_note(&order).await.unwrap());
}

#[tokio::test]
async fn a_waiter_is_notified_of_every_kind_of_end_of_the_place_ahead() {
    for end in [End::Leave, End::Withdrawal, End::Close, End::Break, End::Removal] {
        for with_note in [false, true] {
            let mut pair = Pair::meet(with_note).await;
            pair.end(end).await;
            token(&*pair.waiter.await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_waiter_notified_of_an_ended_session_that_is_alive_looks_again_soon() {
    let (directory, clock) = (directory(), Arc::new(super::crowds::Naps::default()));
    let (near, far) = (store(&directory), store(&directory));
    let (mut holding, mut waiting) =
        (Client::on(&near), Client::with_clock(&far, Arc::clone(&clock) as Arc<dyn Clock>));
    let mut held = holding.enter("job", Claim::MUTEX).await;
    let mut place = waiting.enter("job", Claim::MUTEX).await;
    let mut next = place.next(Moment::NEVER);
    assert!(futures_util::poll!(next.as_mut()).is_pending());
    // The kernel tells this before it drops the lock of a session that ends.
    let session = super::super::sessions::session_name(holding.core.id);
    drop(std::fs::File::options().write(true).open(directory.path().join("sessions").join(session)).unwrap());
    while waiting.core.looks.load(Ordering::SeqCst) < 2 {
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    let nap = clock.0.lock().unwrap().unwrap().since(SystemClock.now());
    assert!(nap < Duration::from_millis(100), "it looks again after {nap:?}");
    held.leave().await.unwrap();
    assert!(matches!(next.await.unwrap(), Standing::Granted(_)));
}
