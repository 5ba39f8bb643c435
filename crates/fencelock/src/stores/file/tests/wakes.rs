//! What holds nobody up: one that dies before its grant is marked, one that nobody polls.

use super::*;

fn permits(count: u32) -> Claim {
    Claim::new(count, 4).unwrap()
}

#[tokio::test]
async fn one_that_dies_between_its_grant_and_the_mark_of_it_holds_nobody_up() {
    let directory = directory();
    let stores = [store(&directory), store(&directory), store(&directory)];
    let [mut holds, mut dies, mut waits] = [0, 1, 2].map(|number| Client::on(&stores[number]));
    let mut held = holds.enter("seats", permits(4)).await;
    // It never looks at its place, so nothing marks the grant that the departure of the holder means.
    let unmarked = dies.enter("seats", permits(4)).await;
    let mut last = waits.enter("seats", permits(2)).await;
    held.leave().await.unwrap();
    last.next(SystemClock.now()).await.unwrap();
    assert!(self::waits(&*last), "all permits belong to the one that is about to die");
    dies.core.forsake();
    granted(&mut last).await;
    drop(unmarked);
}

/// Waits until a place listens, and leaves it.
async fn listens(place: &mut Box<dyn Place>) {
    let mut next = place.next(Moment::NEVER);
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx).is_pending())).await;
    assert!(polled, "nobody has left yet");
}

#[tokio::test]
async fn a_reader_that_nobody_polls_any_more_holds_up_no_reader_behind_it() {
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
