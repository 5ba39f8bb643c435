//! Who is measured.

use clap::ValueEnum;

/// A way to lock, or the floor below all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    /// fencelock with `Io::CurrentRuntime`.
    Current,
    /// fencelock with its I/O thread, all on one core.
    Own,
    /// fencelock with its I/O thread on the second core.
    OwnApart,
    /// The bare system calls of the layout of `file:`.
    Floor,
    /// `flock(2)` of a file that stays open.
    Flock,
    /// The same, the file opened each time.
    FlockOpening,
    /// Python's `filelock`, with its defaults.
    Filelock,
}

impl Contestant {
    /// As a table names it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Current => "fencelock, `Io::CurrentRuntime`",
            Self::Own => "fencelock, I/O thread, one core",
            Self::OwnApart => "fencelock, I/O thread on the other core",
            Self::Floor => "floor: the bare system calls of the layout",
            Self::Flock => "`flock` of an open file",
            Self::FlockOpening => "`flock`, the file opened each time",
            Self::Filelock => "Python's `filelock`",
        }
    }

    /// Whether it is ours.
    pub(crate) const fn is_fencelock(self) -> bool {
        matches!(self, Self::Current | Self::Own | Self::OwnApart)
    }
}
