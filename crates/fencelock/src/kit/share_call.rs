//! A single call for all callers that ask for the same thing while the call is under way.

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};

use crate::sync::Mutex;

/// A caller's part of the call. The call continues while one caller waits, and ends with the last.
pub(crate) type Joined<T> = Shared<BoxFuture<'static, T>>;

/// Shares a call between the callers that ask for the same thing.
pub(crate) struct SharedCall<T: Clone>(Mutex<Option<WeakShared<BoxFuture<'static, T>>>>);

impl<T: Clone> Default for SharedCall<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> SharedCall<T> {
    /// The call under way; if there is none, the one that `begin` makes.
    pub(crate) fn join(&self, begin: impl FnOnce() -> BoxFuture<'static, T>) -> Joined<T> {
        let mut call = self.0.lock();
        let under_way = call.as_ref().and_then(WeakShared::upgrade).filter(|call| call.peek().is_none());
        under_way.unwrap_or_else(|| {
            let begun = begin().shared();
            *call = begun.downgrade();
            begun
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn a_caller_joins_the_call_that_is_under_way_and_begins_another_one_after_it() {
        let call = SharedCall::<u8>::default();
        let one = call.join(|| pending().boxed());
        assert!(call.join(|| unreachable!()).ptr_eq(&one));
        drop(one);
        let two = call.join(|| ready(2).boxed());
        assert_eq!(two.now_or_never(), Some(2));
        assert_eq!(call.join(|| ready(3).boxed()).now_or_never(), Some(3));
    }

    #[test]
    fn a_call_that_every_caller_dropped_is_begun_anew() {
        let call = SharedCall::<u8>::default();
        drop(call.join(|| pending().boxed()));
        assert_eq!(call.join(|| ready(1).boxed()).now_or_never(), Some(1));
    }
}
