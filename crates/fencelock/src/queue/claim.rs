//! The share of a queue's capacity that a contender requests.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// The share that a contender asks for: `weight` of the queue's `capacity`.
///
/// Every primitive is only a claim: a mutex asks for 1 of 1, a semaphore permit for `k` of `n`, a reader for 1 of
/// [`Claim::UNBOUNDED`], a writer for all of it. A claim says nothing about *who* asks or for how long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    weight: u32,
    capacity: u32,
}

impl Claim {
    /// The capacity of a read-write lock: more readers than a store could list.
    pub const UNBOUNDED: u32 = u32::MAX;
    /// The claim of a mutex: all of a queue that fits one.
    pub const MUTEX: Self = Self { weight: 1, capacity: 1 };
    /// The claim of a reader: a weight of 1 in a capacity that readers alone never fill.
    pub const READER: Self = Self { weight: 1, capacity: Self::UNBOUNDED };
    /// The claim of a writer: the whole capacity of a read-write lock.
    pub const WRITER: Self = Self { weight: Self::UNBOUNDED, capacity: Self::UNBOUNDED };

    /// A claim of `weight` out of `capacity`, both at least 1, `weight` at most `capacity`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when `weight` is 0 or larger than `capacity`.
    pub fn new(weight: u32, capacity: u32) -> Result<Self> {
        if weight == 0 || weight > capacity {
            return Err(Error::new(
                ErrorKind::Config,
                "claim",
                format!("a claim takes 1 to {capacity} of a capacity of {capacity}, not {weight}"),
            ));
        }
        Ok(Self { weight, capacity })
    }

    /// The weight: the part of the capacity that this claim takes.
    #[must_use]
    pub const fn weight(self) -> u32 {
        self.weight
    }

    /// The capacity that this claim presumes of its queue; all claims of one queue must agree.
    #[must_use]
    pub const fn capacity(self) -> u32 {
        self.capacity
    }

    /// Whether this claim excludes every other one (a mutex, a writer, a permit for everything).
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.weight == self.capacity
    }

    /// Whether this is the claim of a reader of a read-write lock.
    #[must_use]
    pub const fn is_reader(self) -> bool {
        self.weight == 1 && self.capacity == Self::UNBOUNDED
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MUTEX => f.write_str("mutex"),
            Self::READER => f.write_str("reader"),
            Self::WRITER => f.write_str("writer"),
            Self { weight, capacity } => write!(f, "{weight} of {capacity}"),
        }
    }
}
