//! The recipes for code that blocks: each is the one of the same name, whose calls wait on the caller's thread.

use std::sync::Arc;
use std::time::Duration;

use super::{Client, answers, block_on, may_block, options, wait, waits};
use crate::error::{Error, Result};
use crate::recipes::{self, Leading, Passage};
use crate::token::FencingToken;

/// A recipe: its constructor, its options, and the methods that block.
macro_rules! recipe {
    (
        $(#[$attribute:meta])* $of:literal $recipe:ident($inner:ty);
        $make:ident($($given:ident: $given_type:ty),*);
        $(with $option:ident($value:ident: $value_type:ty);)*
        $(asks $name:ident($($arg:ident: $arg_type:ty)?) -> $result:ty, $wrap:expr;)*
    ) => {
        #[doc = concat!("A [`crate::", $of, "`] for code that blocks.")]
        ///
        $(#[$attribute])*
        #[derive(Debug, Clone)]
        pub struct $recipe($inner);

        impl Client {
            #[doc = concat!("As [`crate::Client::", stringify!($make), "`].")]
            ///
            /// # Errors
            /// The same.
            pub fn $make(&self, $($given: $given_type),*) -> Result<$recipe> {
                self.0.$make($($given),*).map($recipe)
            }
        }

        impl $recipe {
            options! { $of; $(with $option($value: $value_type);)* }
            waits! { $of; $($name($($arg: $arg_type)?) -> $result, $wrap;)* }
        }
    };
}

pub(crate) use recipe;

recipe! { "recipes::Window" Window(recipes::Window);
    window(name: impl AsRef<str>, length: Duration);
    with timeout(limit: Duration);
    asks pass() -> Passage, |passage| passage;
}
recipe! { "recipes::Once" Once(recipes::Once);
    once(name: impl AsRef<str>, version: &str);
    with timeout(limit: Duration);
    asks get() -> Option<Arc<[u8]>>, |made| made;
}
recipe! { "recipes::MultiLock" MultiLock(recipes::MultiLock);
    multi_lock(names: impl IntoIterator<Item = impl AsRef<str>>);
    with timeout(limit: Duration);
    with purpose(purpose: impl AsRef<str>);
    asks acquire() -> MultiGuard, MultiGuard;
    asks try_acquire() -> MultiGuard, MultiGuard;
}
recipe! { "recipes::Election" Election(recipes::Election);
    election(name: impl AsRef<str>);
    with address(address: impl AsRef<[u8]>);
    with purpose(purpose: impl AsRef<str>);
    asks campaign() -> Leader, Leader;
    asks campaign_within(limit: Duration) -> Leader, Leader;
    asks leader() -> Option<Leading>, |leading| leading;
}

impl Once {
    /// As [`crate::recipes::Once::get_or_make`]. Blocking code cannot be stopped when the lock is lost: its value is not kept then.
    ///
    /// # Errors
    /// The same.
    pub fn get_or_make<E: From<Error>>(&self, make: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Arc<[u8]>, E> {
        may_block()?;
        block_on(self.0.get_or_make(async || make()))
    }
}

/// A [`crate::recipes::MultiGuard`] for code that blocks. Dropping it releases the locks in the background.
#[must_use = "a guard that is dropped releases its locks"]
#[derive(Debug)]
pub struct MultiGuard(recipes::MultiGuard);

impl MultiGuard {
    answers! { "recipes::MultiGuard" in 0;
        has token(name: impl AsRef<str>) -> Option<FencingToken>;
        checks check() -> ();
    }

    /// Releases all locks.
    ///
    /// # Errors
    /// As [`crate::recipes::MultiGuard::release`].
    pub fn release(self) -> Result<()> {
        wait(self.0.release())
    }
}

/// A [`crate::recipes::Leader`] for code that blocks. Dropping it resigns in the background.
#[must_use = "a leader that is dropped resigns"]
#[derive(Debug)]
pub struct Leader(recipes::Leader);

impl Leader {
    answers! { "recipes::Leader" in 0; has term() -> Option<FencingToken>; }

    /// As [`crate::recipes::Leader::must_step_down`]: a leader asks this between two steps. Never waits.
    #[must_use]
    pub fn must_step_down(&self) -> bool {
        self.0.to_spare().is_zero()
    }

    /// Resigns: the next candidate leads at once.
    ///
    /// # Errors
    /// As [`crate::recipes::Leader::resign`].
    pub fn resign(self) -> Result<()> {
        wait(self.0.resign())
    }
}
