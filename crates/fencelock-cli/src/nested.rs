//! A lock inside itself: the locks of the commands around this one, as the environment shows them.
//!
//! A wait for a lock that is held around us would never end: its holder waits for us. The environment can be older than the locks in it
//! (a daemon that was started under one): only processes that this one descends from count, which are there for sure.

use std::env;
use std::fmt;
use std::iter::successors;
use std::time::SystemTime;

use fencelock::inspect::{Contender, Page};
use fencelock::{Client, Name};
use nix::unistd::{Pid, getppid};
use serde::{Deserialize, Serialize};

use crate::arguments::Permits;
use crate::output::{Failure, Outcome, code};
use crate::processes::{parent_of, start_of};
use crate::times;

/// The environment variable with the locks that are held around a command, in JSON, the outermost first.
pub(crate) const HELD_VARIABLE: &str = "FENCELOCK_HELD";

/// The longest value of the variable, in bytes: the kernel starts no program with a string of 128 KiB or more
/// (execve(2)).
const MOST_BYTES: usize = 120 * 1024;

/// The kind of lock that is held, or wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Mutex,
    Shared,
    Exclusive,
    Permits(u32, u32),
}

/// A lock that a `fencelock run` holds while its command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    by: Holder,
    pub(crate) name: String,
    pub(crate) token: Option<String>,
}

/// The facts that all locks of one `fencelock run` in one store share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    store: String,
    client: u64,
    mode: Mode,
    /// The process of `fencelock run`, and when it started: a later process may have its number.
    pid: i32,
    start: u64,
    since: String,
    command: String,
}

/// The locks of one holder in the variable: each name and its token.
#[derive(Serialize, Deserialize)]
struct Group {
    #[serde(flatten)]
    by: Holder,
    locks: Vec<(String, Option<String>)>,
}

impl Holder {
    /// This process. `None` where the kernel does not show when this process started.
    pub(crate) fn this_process((store, client): (String, u64), mode: Mode, command: String) -> Option<Self> {
        let us = Pid::this();
        let since = times::to_second(SystemTime::now());
        Some(Self { store, client, mode, pid: us.as_raw(), start: start_of(us)?, since, command })
    }

    pub(crate) fn holds(self, name: &Name, token: Option<String>) -> Held {
        Held { by: self, name: name.to_string(), token }
    }
}

impl Held {
    /// Whether `holder` is a place of the client that holds this lock.
    fn is_place(&self, holder: &Contender) -> bool {
        self.by.client == holder.id.client
    }

    /// The failure of a command that would wait for this lock.
    pub(crate) fn is_around(&self, how: &str) -> Failure {
        Failure::new(code::NESTED, format!("{self}: a wait for it{how} would never end"))
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by: Holder { store, pid, since, command, .. }, name, .. } = self;
        let how = if self.by.mode == Mode::Shared { " shared" } else { "" };
        write!(f, "the lock {name} in {store} is held{how} by pid {pid} for {command:?} since {since}")?;
        f.write_str(", and this command runs under it")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Around(Vec<Held>);

impl Around {
    /// Locks held around this process. Without the variable there are none. An unreadable variable is refused: the variable may name a
    /// lock that a wait would never get.
    pub(crate) fn this_process() -> Outcome<Self> {
        let unread = || {
            format!("{HELD_VARIABLE} is not what `fencelock run` sets: unset it, unless this command runs under a lock")
        };
        let given = env::var_os(HELD_VARIABLE).unwrap_or_default();
        let read = given.to_str().and_then(Self::read);
        let mut around = read.ok_or_else(|| Failure::new(code::USAGE, unread()))?;
        if !around.0.is_empty() {
            let ancestors: Vec<_> = successors(Some(getppid()), |process| parent_of(*process)).collect();
            around.0.retain(|Held { by, .. }| {
                let pid = Pid::from_raw(by.pid);
                ancestors.contains(&pid) && start_of(pid) == Some(by.start)
            });
        }
        Ok(around)
    }

    fn read(given: &str) -> Option<Self> {
        let groups: Vec<Group> = if given.is_empty() { Vec::new() } else { serde_json::from_str(given).ok()? };
        let locks = |Group { by, locks }| {
            locks.into_iter().map(move |(name, token)| Held { by: Holder::clone(&by), name, token })
        };
        Some(Self(groups.into_iter().flat_map(locks).collect()))
    }

    /// The outer holder of the lock `name` of `store` that can share it with a command that wants it as `mode`; `None` where
    /// the command can wait for the lock.
    pub(crate) fn sharing(&self, store: &str, name: &Name, mode: Mode) -> Outcome<Option<&Held>> {
        let same = || self.0.iter().filter(|held| held.by.store == store && held.name == name.as_str());
        let Some(last) = same().next_back() else { return Ok(None) };
        let permits = |held: &Held| match (held.by.mode, mode) {
            (Mode::Permits(count, of), Mode::Permits(_, all)) => Some(u64::from(count) * u64::from(of == all)),
            _ => None,
        };
        match (mode, same().map(permits).sum::<Option<u64>>()) {
            (Mode::Permits(count, capacity), Some(held)) if held + u64::from(count) <= capacity.into() => Ok(None),
            (Mode::Shared, _) if same().all(|held| held.by.mode == Mode::Shared) => Ok(Some(last)),
            _ => Err(last.is_around("")),
        }
    }

    /// Refuses `names` that are held around this process in `store`, under another name or by another URL of the store.
    pub(crate) async fn refuse_unlike(&self, store: &str, client: &Client, names: &[Name], mode: Mode) -> Outcome<()> {
        for (held, name) in self.0.iter().flat_map(|held| names.iter().map(move |name| (held, name))) {
            let is_it = if held.by.store == store {
                held.name != name.as_str() && client.key(&Name::new(&held.name)?).await? == client.key(name).await?
            } else if matches!(
                (held.by.mode, mode),
                (Mode::Shared, Mode::Shared) | (Mode::Permits(..), Mode::Permits(..))
            ) {
                false
            } else {
                let queue = client.queue_page(name, Page { skip: 0, limit: 1000 }).await;
                queue.is_ok_and(|queue| queue.contenders.iter().any(|holder| held.is_place(holder)))
            };
            if is_it {
                return Err(held.is_around(&format!(", which {name} is in {store},")));
            }
        }
        Ok(())
    }

    /// Whether an outer lock is the place of `holder`, under any URL of its store.
    pub(crate) fn is_holder(&self, holder: &Contender) -> bool {
        self.0.iter().any(|held| held.is_place(holder))
    }

    /// The innermost holder of the lock `name` of `store`.
    pub(crate) fn holds(&self, store: &str, name: &Name) -> Option<&Held> {
        self.0.iter().rfind(|held| held.by.store == store && held.name == name.as_str())
    }

    /// The variable for a command that runs under `held` as well.
    pub(crate) fn and(mut self, held: impl IntoIterator<Item = Held>) -> Outcome<Option<String>> {
        self.0.extend(held);
        let mut groups: Vec<Group> = Vec::new();
        for Held { by, name, token } in self.0 {
            match groups.last_mut().filter(|group| group.by == by) {
                Some(group) => group.locks.push((name, token)),
                None => groups.push(Group { by, locks: vec![(name, token)] }),
            }
        }
        let text = serde_json::to_string(&groups).unwrap_or_default();
        if text.len() > MOST_BYTES {
            let message = format!(
                "the names of the locks around this command and of its own take {} bytes in {HELD_VARIABLE}, which has at most {MOST_BYTES}: \
                 nest fewer locks",
                text.len()
            );
            return Err(Failure::new(code::USAGE, message));
        }
        Ok((!groups.is_empty()).then_some(text))
    }
}

impl Mode {
    pub(crate) fn of(shared: bool, exclusive: bool, permits: Option<Permits>) -> Self {
        match permits {
            Some(Permits { count, capacity }) => Self::Permits(count, capacity),
            None if shared => Self::Shared,
            None if exclusive => Self::Exclusive,
            None => Self::Mutex,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(modes: &[Mode]) -> Around {
        let by = |mode: &Mode| Holder::this_process(("file:///x".to_owned(), 7), *mode, "sh".to_owned()).unwrap();
        let held = |mode: &Mode| by(mode).holds(&job(), None);
        Around(modes.iter().map(held).collect())
    }

    fn job() -> Name {
        Name::new("job").unwrap()
    }

    #[test]
    fn a_holder_gets_its_lock_again_only_where_both_share_or_permits_are_left() {
        use Mode::{Exclusive, Mutex, Permits, Shared};
        let hangs = |held: &[Mode], wanted| around(held).sharing("file:///x", &job(), wanted).is_err();
        let shares = |held: &[Mode], wanted| matches!(around(held).sharing("file:///x", &job(), wanted), Ok(Some(_)));
        for (held, wanted) in [
            (Mutex, Mutex),
            (Exclusive, Exclusive),
            (Exclusive, Shared),
            (Shared, Exclusive),
            (Permits(2, 3), Permits(2, 3)),
        ] {
            assert!(hangs(&[held], wanted), "{wanted:?} in {held:?}");
        }
        assert!(shares(&[Shared], Shared) && shares(&[Shared, Shared], Shared));
        assert!(!hangs(&[Permits(1, 3), Permits(1, 3)], Permits(1, 3)));
        assert!(hangs(&[Permits(1, 2), Permits(1, 2)], Permits(1, 2)));
        assert!(!hangs(&[Permits(3, 3)], Permits(1, 4)), "the store refuses another number");
        let other = Name::new("other").unwrap();
        for (store, name) in [("file:///y", &job()), ("file:///x", &other)] {
            assert!(matches!(around(&[Mutex]).sharing(store, name, Mutex), Ok(None)), "{store} {name}");
        }
    }

    #[test]
    fn the_locks_written_to_the_environment_are_read_back_the_same() {
        let held = around(&[Mode::Mutex, Mode::Mutex, Mode::Permits(1, 3)]);
        let text = Around(held.0.clone()).and(None).unwrap().unwrap();
        assert_eq!((Around::read(&text).unwrap().0, text.matches("pid").count()), (held.0, 2));
        assert!(Around::default().and(None).unwrap().is_none());
    }
}
