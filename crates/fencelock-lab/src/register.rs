//! The resource behind one lock: a register in a file that all workers share, and that objects.
//!
//! The register decides under a `flock` of its own, which has nothing to do with fencelock, and keeps its counts, so that a worker which is
//! killed takes no count with it. A worker that is stopped in there stops the others, until it continues or is killed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::resource::seize;

/// Something that a register counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Acquires.
    Waits,
    /// Sections that were entered by a holder whose guard said it holds.
    Sections,
    /// Sections whose grant had a token.
    WithToken,
    /// Sections whose worker had waited in the queue, as the store had said.
    Queued,
    /// Holders whose guard says they hold while another's does.
    TwoHolders,
    /// Tokens that are not above the one before.
    NotRising,
    /// Grants before that of one who waited already when the other asked.
    OutOfOrder,
    /// Acquires that took longer than the store's times explain.
    Stuck,
    /// Writes of who knew by then that its lock was lost, refused by their token.
    LateRefused,
    /// The same, taken although another had entered meanwhile.
    LateTaken,
    /// The same where no other had entered meanwhile, so that nothing was overwritten.
    LateAlone,
    /// The same in a store without tokens: nothing could refuse them.
    LateUnfenced,
    /// Holders that had not left when their validity was over and another entered.
    Overtaken,
    /// Releases of a lock that was lost.
    Lost,
    /// Acquires and releases that failed otherwise.
    Failed,
}

const COUNTS: usize = Count::Failed as usize + 1;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    newest: u64,
    /// The worker that is in there, counted from 1.
    occupant: u64,
    /// Until when that one's guard is valid, as it said last, in nanoseconds of the boot clock.
    valid_until: u64,
    /// When the last of those asked that were let in so far.
    latest_asked: u64,
    /// The longest time from a kill of a holder, or from the end of its validity, to the next holder, in nanoseconds.
    longest_takeover: u64,
    counts: [u64; COUNTS],
}

/// How many bytes its JSON has, with spaces behind it: 20 digits for each number.
const BYTES: usize = 160 + 21 * (5 + COUNTS);

impl State {
    fn count(&mut self, what: Count) {
        self.counts[what as usize] += 1;
    }
}

/// How a worker got its lock. Moments are nanoseconds of the boot clock, the same for all processes.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// The worker's number, counted from 1.
    pub worker: u64,
    /// The fencing token.
    pub token: Option<u64>,
    /// When the acquire was called.
    pub asked: u64,
    /// When the store had said that the worker waits, if it did.
    pub queued: Option<u64>,
}

/// A register, opened by one process.
#[derive(Debug)]
pub struct Register {
    name: String,
    state: File,
    /// For each worker when it was killed, or 0.
    doomed: File,
    faults: File,
}

impl Register {
    /// Opens the register called `name` in `directory`, and makes it when it is not there.
    pub fn open(directory: &Path, name: &str) -> io::Result<Self> {
        let open = |file: &str| {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(directory.join(file))
        };
        let faults = OpenOptions::new().append(true).create(true).open(directory.join("faults"))?;
        Ok(Self { name: name.to_owned(), state: open(&format!("register-{name}"))?, doomed: open("doomed")?, faults })
    }

    fn change<T>(&self, work: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        seize(&self.state)?;
        let done = self.read().and_then(|mut state| {
            let done = work(&mut state)?;
            let text = serde_json::to_string(&state)?;
            self.state.write_all_at(format!("{text:<BYTES$}").as_bytes(), 0)?;
            Ok(done)
        });
        flock(&self.state, FlockOperation::Unlock)?;
        done
    }

    fn read(&self) -> io::Result<State> {
        let mut bytes = [0; BYTES];
        match self.state.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(State::default()),
            Err(error) => Err(error),
        }
    }

    fn fault(&self, state: &mut State, what: Count, grant: &Grant, said: &str) -> io::Result<()> {
        state.count(what);
        let token = grant.token.map_or_else(|| "none".to_owned(), |token| token.to_string());
        let line = format!("{}: worker {} with token {token}: {said}\n", self.name, grant.worker);
        (&self.faults).write_all(line.as_bytes())
    }

    /// Lets `grant` in; whether that one may work. `valid` says the time now and until when the guard is valid, `None` when it is not.
    pub fn enter(&self, grant: &Grant, valid: impl FnOnce() -> (u64, Option<u64>)) -> io::Result<bool> {
        self.change(|state| {
            let (now, until) = valid();
            let Some(until) = until else { return self.late(state, grant).map(|()| false) };
            state.count(Count::Sections);
            let other = Some(state.occupant).filter(|other| *other != 0 && *other != grant.worker);
            let killed = other.map_or(Ok(None), |other| self.killed(other))?;
            if other.is_some() && (killed.is_some() || state.valid_until <= now) {
                let over = killed.unwrap_or(state.valid_until);
                state.longest_takeover = state.longest_takeover.max(now.saturating_sub(over));
            }
            match other {
                Some(_) if killed.is_some() => {}
                Some(other) if state.valid_until > now => {
                    let left = (state.valid_until - now) / 1_000_000;
                    let said = format!("entered while worker {other} held a lock that was valid for {left} ms more");
                    self.fault(state, Count::TwoHolders, grant, &said)?;
                }
                Some(_) => state.count(Count::Overtaken),
                None => {}
            }
            if let Some(token) = grant.token {
                state.count(Count::WithToken);
                if token <= state.newest {
                    let said = format!("the token is not above {}", state.newest);
                    self.fault(state, Count::NotRising, grant, &said)?;
                }
                state.newest = state.newest.max(token);
            }
            if let Some(queued) = grant.queued {
                state.count(Count::Queued);
                if state.latest_asked > queued {
                    let ahead = (state.latest_asked - queued) / 1_000;
                    let said = format!("another was granted first that asked {ahead} µs after this one was queued");
                    self.fault(state, Count::OutOfOrder, grant, &said)?;
                }
            }
            state.latest_asked = state.latest_asked.max(grant.asked);
            (state.occupant, state.valid_until) = (grant.worker, until);
            Ok(true)
        })
    }

    /// A write of who entered; `valid` as for [`Register::enter`].
    pub fn write(&self, grant: &Grant, valid: impl FnOnce() -> (u64, Option<u64>)) -> io::Result<()> {
        self.change(|state| match (valid().1, state.occupant == grant.worker) {
            (Some(until), true) => {
                state.valid_until = until;
                Ok(())
            }
            (Some(_), false) => {
                self.fault(state, Count::TwoHolders, grant, "another had entered while this one's guard was valid")
            }
            (None, true) => {
                state.count(Count::LateAlone);
                Ok(())
            }
            (None, false) => self.late(state, grant),
        })
    }

    /// A write of who knows that its lock is lost.
    fn late(&self, state: &mut State, grant: &Grant) -> io::Result<()> {
        match grant.token {
            None => state.count(Count::LateUnfenced),
            Some(token) if token < state.newest => state.count(Count::LateRefused),
            // No worker entered with a higher one: either none did at all, or tokens do not rise.
            Some(token) if token > state.newest => {
                state.newest = token;
                state.count(Count::LateAlone);
            }
            Some(_) => self.fault(state, Count::LateTaken, grant, "a late write was not refused by its token")?,
        }
        Ok(())
    }

    /// The worker has left.
    pub fn leave(&self, worker: u64) -> io::Result<()> {
        self.change(|state| {
            if state.occupant == worker {
                (state.occupant, state.valid_until) = (0, 0);
            }
            Ok(())
        })
    }

    /// Counts one more.
    pub fn count(&self, what: Count) -> io::Result<()> {
        self.change(|state| {
            state.count(what);
            Ok(())
        })
    }

    /// Counts a fault of `grant`, and notes what it was.
    pub fn note(&self, what: Count, grant: &Grant, said: &str) -> io::Result<()> {
        self.change(|state| self.fault(state, what, grant, said))
    }

    /// How many there were.
    pub fn counted(&self, what: Count) -> io::Result<u64> {
        Ok(self.read()?.counts[what as usize])
    }

    /// The worker that is in there.
    pub fn occupant(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.read()?.occupant).filter(|worker| *worker != 0))
    }

    /// The worker is about to be killed, at `now`: its lock ends then, whatever its guard said.
    pub fn doom(&self, worker: u64, now: u64) -> io::Result<()> {
        self.doomed.write_all_at(&now.max(1).to_le_bytes(), worker * 8)
    }

    /// When the worker was killed.
    fn killed(&self, worker: u64) -> io::Result<Option<u64>> {
        let mut at = [0; 8];
        let is_there = self.doomed.read_at(&mut at, worker * 8)? == at.len();
        Ok(Some(u64::from_le_bytes(at)).filter(|at| is_there && *at > 0))
    }

    /// The longest time from a kill of a holder, or from the end of its validity, to the next holder.
    pub fn longest_takeover(&self) -> io::Result<Duration> {
        Ok(Duration::from_nanos(self.read()?.longest_takeover))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(worker: u64, token: u64) -> Grant {
        Grant { worker, token: Some(token), asked: token * 10, queued: None }
    }

    /// A register, in a directory of its own.
    fn register() -> (tempfile::TempDir, Register) {
        let directory = tempfile::tempdir().unwrap();
        let register = Register::open(directory.path(), "a").unwrap();
        (directory, register)
    }

    /// Every fault that is there, with its number.
    fn counted(register: &Register) -> Vec<(usize, u64)> {
        let counts = register.read().unwrap().counts;
        let ordinary = [Count::Sections as usize, Count::WithToken as usize, Count::Queued as usize];
        counts.into_iter().enumerate().filter(|(at, count)| *count > 0 && !ordinary.contains(at)).collect()
    }

    #[test]
    fn one_after_the_other_is_no_fault() {
        let (_directory, register) = register();
        for token in 1..4 {
            assert!(register.enter(&grant(token, token), || (0, Some(9))).unwrap());
            register.write(&grant(token, token), || (1, Some(9))).unwrap();
            register.leave(token).unwrap();
        }
        assert_eq!((counted(&register), register.counted(Count::Sections).unwrap()), (vec![], 3));
    }

    #[test]
    fn two_valid_holders_are_found_by_whoever_comes_second_and_by_whoever_goes_on() {
        let (_directory, register) = register();
        register.enter(&grant(1, 1), || (0, Some(100))).unwrap();
        register.enter(&grant(2, 2), || (50, Some(100))).unwrap();
        assert_eq!(register.counted(Count::TwoHolders).unwrap(), 1);
        register.write(&grant(1, 1), || (60, Some(100))).unwrap();
        assert_eq!(register.counted(Count::TwoHolders).unwrap(), 2);
    }

    #[test]
    fn a_holder_that_was_stopped_past_its_validity_is_refused_by_its_token_and_is_no_fault() {
        let (_directory, register) = register();
        register.enter(&grant(1, 1), || (0, Some(100))).unwrap();
        register.enter(&grant(2, 2), || (150, Some(300))).unwrap();
        register.write(&grant(1, 1), || (160, None)).unwrap();
        assert!(!register.enter(&grant(3, 1), || (170, None)).unwrap());
        let expected = vec![(Count::LateRefused as usize, 2), (Count::Overtaken as usize, 1)];
        assert_eq!(counted(&register), expected);
    }

    #[test]
    fn a_late_write_that_its_token_does_not_give_away_is_a_fault() {
        let (_directory, register) = register();
        register.enter(&grant(1, 1), || (0, Some(100))).unwrap();
        register.enter(&grant(2, 1), || (150, Some(300))).unwrap();
        register.write(&grant(1, 1), || (160, None)).unwrap();
        assert_eq!(register.counted(Count::NotRising).unwrap(), 1);
        assert_eq!(register.counted(Count::LateTaken).unwrap(), 1);
    }

    #[test]
    fn who_was_killed_holds_nothing() {
        let (_directory, register) = register();
        register.enter(&grant(1, 1), || (0, Some(u64::MAX))).unwrap();
        register.doom(1, 5).unwrap();
        register.enter(&grant(2, 2), || (8, Some(9))).unwrap();
        assert_eq!(counted(&register), []);
        assert_eq!(register.longest_takeover().unwrap(), Duration::from_nanos(3));
    }

    #[test]
    fn who_was_queued_before_another_asked_has_to_be_granted_before() {
        let (_directory, register) = register();
        let queued = |worker, asked, queued| Grant { queued: Some(queued), asked, ..grant(worker, worker) };
        register.enter(&queued(1, 10, 20), || (0, Some(9))).unwrap();
        register.leave(1).unwrap();
        register.enter(&queued(2, 5, 15), || (0, Some(9))).unwrap();
        register.leave(2).unwrap();
        assert_eq!(register.counted(Count::OutOfOrder).unwrap(), 0, "both were under way at a time");
        register.enter(&queued(3, 1, 9), || (0, Some(9))).unwrap();
        assert_eq!(register.counted(Count::OutOfOrder).unwrap(), 1);
    }
}
