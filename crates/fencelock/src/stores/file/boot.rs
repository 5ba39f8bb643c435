//! Which boot of the machine this is, also where the kernel's own name for it cannot be read (no `/proc`).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::files::temporary_name;
use super::platform;

/// How far two sights of the moment of one boot may differ: the wall clock may have been set in between. Set further, it
/// makes another boot of it, which skips some numbers.
const SAME: Duration = Duration::from_secs(30);

/// One boot of the machine: the kernel's id, and the second of the wall clock at which it began, each where it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boot {
    id: Option<String>,
    began: Option<u64>,
}

impl Boot {
    /// The kernel's id of this one. Where neither that nor when it began can be known, each opening of a directory counts as
    /// a boot of its own.
    pub(super) fn id() -> Option<String> {
        platform::boot_id().or_else(|| platform::uptime().is_none().then(temporary_name))
    }

    /// This one, whose id is `id`.
    pub(super) fn current(id: Option<String>, wall: SystemTime) -> Self {
        let began = platform::uptime().and_then(|uptime| wall.checked_sub(uptime));
        let began = began.and_then(|began| began.duration_since(UNIX_EPOCH).ok());
        Self { id, began: began.map(|began| began.as_secs()) }
    }

    /// Whether both are the same one, by what is known of both.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.id, &other.id, self.began, other.began) {
            (Some(mine), Some(theirs), _, _) => mine == theirs,
            (_, _, Some(mine), Some(theirs)) => mine.abs_diff(theirs) <= SAME.as_secs(),
            _ => false,
        }
    }

    /// Reads what [`fmt::Display`] writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (id, began) = text.split_once(' ').unwrap_or((text, UNKNOWN));
        let began = if began == UNKNOWN { None } else { Some(began.parse().ok()?) };
        Some(Self { id: (id != UNKNOWN).then(|| id.to_owned()), began })
    }
}

const UNKNOWN: &str = "-";

impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id.as_deref().unwrap_or(UNKNOWN))?;
        match self.began {
            Some(began) => write!(f, " {began}"),
            None => write!(f, " {UNKNOWN}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(id: Option<&str>, began: Option<u64>) -> Boot {
        Boot { id: id.map(str::to_owned), began }
    }

    #[test]
    fn a_boot_is_told_by_its_id_or_else_by_when_it_began() {
        assert!(boot(Some("a"), Some(1000)).is_same(&boot(Some("a"), Some(9000))), "the clock was set");
        assert!(!boot(Some("a"), Some(1000)).is_same(&boot(Some("b"), Some(1000))));
        assert!(boot(None, Some(1000)).is_same(&boot(Some("a"), Some(1020))), "one of them has no /proc");
        assert!(!boot(None, Some(1000)).is_same(&boot(None, Some(1100))));
        assert!(!boot(None, None).is_same(&boot(None, None)), "nothing is known");
    }

    #[test]
    fn a_boot_is_read_back() {
        for boot in [boot(Some("a-1"), Some(5)), boot(None, Some(5)), boot(Some("a"), None), boot(None, None)] {
            assert_eq!(Boot::parse(&boot.to_string()), Some(boot));
        }
        assert_eq!(Boot::parse("a-1"), Some(boot(Some("a-1"), None)));
        assert_eq!(Boot::parse("a-1 x"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processes_with_and_without_proc_agree_on_the_boot() {
        let known = Boot::current(Boot::id(), SystemTime::now());
        assert!(known.began.is_some() && known.id.is_some());
        let blind = Boot::current(None, SystemTime::now());
        assert!(blind.is_same(&known) && known.is_same(&blind));
    }
}
