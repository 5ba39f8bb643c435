//! Pauses between tries.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Opening;
use crate::time::outcome_before;

/// Completes at the second poll. Tokio's `yield_now` would cost the runtime of the first poll a look at its driver.
pub(crate) async fn second_poll() {
    let mut is_first = true;
    poll_fn(|cx| {
        let _ = is_first.then(|| cx.waker().wake_by_ref());
        if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

/// The longest pause of a holder: a holder reconnects before new clients connect.
pub(crate) const LONGEST_OF_HOLDERS: Duration = Duration::from_millis(250);

/// The pause after `failures` failures in a row (from 1). Doubles up to the longest, less up to a quarter, so that clients spread out.
pub(crate) fn pause(shortest: Duration, longest: Duration, failures: u32) -> Duration {
    let doubled = shortest.saturating_mul(1 << failures.saturating_sub(1).min(16));
    spread(doubled.min(longest))
}

/// Up to a quarter less than `pause`. A simulation seeds the random numbers, and repeats its run.
pub(crate) fn spread(pause: Duration) -> Duration {
    let most = u64::try_from(pause.as_nanos() / 4).unwrap_or(u64::MAX);
    pause.saturating_sub(Duration::from_nanos(fastrand::u64(..=most)))
}

/// Asks about one of several parts of the locks, and again after a failure that may pass, for as long as a renewal may last: a server that
/// is away holds up no other. A single part is asked once, for as long as a connection may take, because a slow machine needs that long.
pub(crate) async fn ask_part<T, F>(opening: &Opening, is_alone: bool, ask: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let clock = &opening.clock;
    let end = clock.now().after(if is_alone { opening.patience() } else { opening.request_deadline / 2 });
    let message = "the server of these locks does not answer";
    let silent = || Err(Error::new(ErrorKind::Unreachable, "renew", message).outcome_unknown().retryable());
    loop {
        let error = match outcome_before(&**clock, end, ask()).await.unwrap_or_else(silent) {
            Err(error) if error.is_retryable() && !is_alone => error,
            answer => return answer,
        };
        clock.sleep_until(clock.now().after(LONGEST_OF_HOLDERS).min(end)).await;
        if clock.now() >= end {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt;

    use super::*;
    use crate::store::Owner;
    use crate::stores::memory::VirtualClock;
    use crate::time::Clock;

    #[tokio::test]
    async fn a_part_of_several_is_asked_again_until_half_of_the_deadline_and_a_refusal_ends_that() {
        let clock = VirtualClock::new();
        let owner = Owner { client: 7, host: "host".to_owned(), pid: 1 };
        let opening = Opening::here(owner, Duration::from_secs(6), Arc::new(clock.clone())).unwrap();
        let asked = AtomicU32::new(0);
        let failing = |is_alone| {
            ask_part(&opening, is_alone, || async {
                asked.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(Error::new(ErrorKind::Unreachable, "test", "down").retryable())
            })
        };
        assert!(failing(true).now_or_never().unwrap().is_err(), "a single part is asked once");
        let (mut asking, begun) = (Box::pin(failing(false)), clock.now());
        let error = loop {
            if let Some(answer) = asking.as_mut().now_or_never() {
                break answer.unwrap_err();
            }
            clock.advance(LONGEST_OF_HOLDERS);
        };
        assert_eq!((clock.now().since(begun), asked.load(Ordering::Relaxed)), (Duration::from_secs(1), 5), "{error}");
        assert!(error.to_string().contains("down"), "{error}");
        let refused = || async { Err::<(), _>(Error::new(ErrorKind::Denied, "test", "no")) };
        assert!(ask_part(&opening, false, refused).now_or_never().unwrap().is_err());
        let mut silent = Box::pin(ask_part(&opening, false, std::future::pending::<Result<()>>));
        assert!(silent.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        assert!(silent.now_or_never().unwrap().unwrap_err().is_retryable());
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_lose_a_quarter_at_most() {
        let (shortest, longest) = (Duration::from_millis(20), Duration::from_secs(1));
        for (failures, whole) in [(0, 20), (1, 20), (2, 40), (3, 80), (6, 640), (7, 1000), (u32::MAX, 1000)] {
            let (pause, whole) = (pause(shortest, longest, failures), Duration::from_millis(whole));
            assert!(whole * 3 / 4 <= pause && pause <= whole, "{failures}: {pause:?}");
        }
        assert_eq!(pause(Duration::ZERO, longest, 5), Duration::ZERO);
    }
}
