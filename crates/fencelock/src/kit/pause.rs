//! Pauses between tries.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

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
