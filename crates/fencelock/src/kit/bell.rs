//! A bell for one task: another task rings it after a change, and the task looks for the change.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Wakes one task at a time. A ring is never lost: the bell keeps a ring until a task takes it.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    listener: AtomicWaker,
}

impl Bell {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Wakes the task that listens. Runs its waker: call it with no lock in hand.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.stir();
    }

    /// Wakes the listening task for another reason, without a ring.
    pub(crate) fn stir(&self) {
        self.listener.wake();
    }

    /// Whether the bell rang since the last call.
    pub(crate) fn take(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn listen(&self, waker: &Waker) {
        self.listener.register(waker);
    }

    /// Completes once the bell rings or if it rang, and takes the ring. A dropped future takes nothing, and leaves no waker.
    pub(crate) fn rung(&self) -> Listening<'_> {
        Listening(self)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// A task that listens.
#[must_use = "futures do nothing unless they are awaited"]
pub(crate) struct Listening<'a>(&'a Bell);

impl Future for Listening<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.listen(cx.waker());
        if self.0.take() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        drop(self.0.listener.take());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use futures_util::FutureExt;

    use super::*;

    /// Counts how often its task is woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn woken(task: &Arc<Task>) -> usize {
        task.0.load(Ordering::SeqCst)
    }

    #[test]
    fn a_listener_from_before_or_after_the_ring_is_woken_once() {
        let (bell, task) = (Bell::new(), Arc::new(Task::default()));
        let waker = Waker::from(Arc::clone(&task));
        let mut listening = pin!(bell.rung());
        assert!(listening.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        bell.ring();
        bell.ring();
        assert_eq!(woken(&task), 1);
        assert!(listening.poll(&mut Context::from_waker(&waker)).is_ready());
        assert!(!bell.take() && bell.rung().now_or_never().is_none());
        bell.ring();
        assert_eq!(bell.rung().now_or_never(), Some(()));
        assert!(bell.rung().now_or_never().is_none());
    }

    #[test]
    fn a_listener_that_stops_loses_no_ring_and_leaves_no_waker() {
        let (bell, task) = (Bell::new(), Arc::new(Task::default()));
        let waker = Waker::from(Arc::clone(&task));
        let mut listening = Box::pin(bell.rung());
        assert!(listening.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop((listening, waker));
        assert_eq!(Arc::strong_count(&task), 1);
        bell.ring();
        assert_eq!(woken(&task), 0);
        assert_eq!(bell.rung().now_or_never(), Some(()));
    }

    #[test]
    fn a_bell_is_a_waker_that_keeps_the_ring_and_a_stir_is_none() {
        let (bell, task) = (Bell::new(), Arc::new(Task::default()));
        bell.listen(&Waker::from(Arc::clone(&task)));
        bell.stir();
        assert!(woken(&task) == 1 && !bell.take());
        Waker::from(Arc::clone(&bell)).wake();
        assert!(bell.take() && !bell.take());
    }
}
