//! A lock that collects wakers, and wakes them after its release: a waker may run any code, even code that takes the lock again.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::task::Waker;

use crate::sync::Mutex;

/// The lock of a state that collects wakers.
#[derive(Debug, Default)]
pub(crate) struct WakingLock<T>(Mutex<T>);

impl<T: AsMut<Vec<Waker>>> WakingLock<T> {
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        Locked { state: self.0.lock(), noted: Noted::default() }
    }

    /// Takes the lock if no caller holds it.
    pub(crate) fn lock_now(&self) -> Option<Locked<'_, T>> {
        self.0.try_lock().map(|state| Locked { state, noted: Noted::default() })
    }
}

#[derive(Debug)]
pub(crate) struct Locked<'a, T: AsMut<Vec<Waker>>> {
    // The fields are dropped in this order.
    state: MutexGuard<'a, T>,
    noted: Noted,
}

/// The collected wakers. Dropping this wakes them.
#[derive(Debug, Default)]
struct Noted(Vec<Waker>);

impl<T: AsMut<Vec<Waker>>> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T: AsMut<Vec<Waker>>> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}

impl<T: AsMut<Vec<Waker>>> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        self.noted.0 = std::mem::take((*self.state).as_mut());
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct State {
        wakes: Vec<Waker>,
        woken: usize,
    }

    impl AsMut<Vec<Waker>> for State {
        fn as_mut(&mut self) -> &mut Vec<Waker> {
            &mut self.wakes
        }
    }

    /// A waker that takes the lock again.
    impl Wake for WakingLock<State> {
        fn wake(self: Arc<Self>) {
            self.lock_now().expect("a task is woken while the lock is held").woken += 1;
        }
    }

    #[test]
    fn every_noted_task_is_woken_once_after_the_lock_is_released() {
        let lock = Arc::new(WakingLock::<State>::default());
        let mut state = lock.lock();
        state.wakes.extend([Waker::from(Arc::clone(&lock)), Waker::from(Arc::clone(&lock))]);
        assert!(lock.lock_now().is_none());
        drop(state);
        assert_eq!(lock.lock().woken, 2);
        drop(lock.lock());
        assert_eq!(lock.lock().woken, 2);
    }

    #[test]
    fn a_panic_under_the_lock_loses_no_waker_and_does_no_harm() {
        let lock = Arc::new(WakingLock::<State>::default());
        let noted = Arc::clone(&lock);
        let panicked = std::thread::spawn(move || {
            let mut state = noted.lock();
            state.wakes.push(Waker::from(Arc::clone(&noted)));
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(lock.lock().woken, 1);
    }
}
