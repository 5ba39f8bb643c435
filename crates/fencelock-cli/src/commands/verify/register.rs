//! What the lock of one name protects: a register in a file that all workers share, and that objects.
//!
//! It decides under a `flock` of its own, which has nothing to do with fencelock. It keeps what it counted, so that a worker which is
//! killed takes no count with it. A worker that is stopped in there stops the others, until it goes on or is killed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Waits,
    /// Sections that were entered by a holder whose guard said it holds.
    Sections,
    WithToken,
    /// Sections whose worker had waited in the queue, as the store had said.
    Queued,
    /// Holders whose guard says they hold while another's does.
    TwoHolders,
    /// Tokens that are not above the one before.
    NotRising,
    /// Grants before that of one who waited already when the other asked.
    OutOfOrder,
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
    counts: [u64; COUNTS],
}

/// How many bytes its JSON has, with spaces behind it: 20 digits for each number.
const BYTES: usize = 128 + 21 * (4 + COUNTS);

impl State {
    fn count(&mut self, what: Count) {
        self.counts[what as usize] += 1;
    }
}

/// How a worker got its lock. Moments are nanoseconds of the boot clock, the same for all processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) worker: u64,
    pub(super) token: Option<u64>,
    pub(super) asked: u64,
    /// When the store had said that the worker waits, if it did.
    pub(super) queued: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Register {
    name: String,
    state: File,
    /// A byte for each worker; 1 for one that is about to be killed.
    doomed: File,
    faults: File,
}

impl Register {
    /// Opens the register called `name` in `directory`, and makes it when it is not there.
    pub(super) fn open(directory: &Path, name: &str) -> io::Result<Self> {
        let open = |file: &str| {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(directory.join(file))
        };
        let faults = OpenOptions::new().append(true).create(true).open(directory.join("faults"))?;
        Ok(Self { name: name.to_owned(), state: open(&format!("register-{name}"))?, doomed: open("doomed")?, faults })
    }

    fn change<T>(&self, work: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let locked = Flock::lock(self.state.try_clone()?, FlockArg::LockExclusive);
        let _locked = locked.map_err(|(_, error)| io::Error::from(error))?;
        let mut state = self.read()?;
        let done = work(&mut state)?;
        let text = serde_json::to_string(&state)?;
        self.state.write_all_at(format!("{text:<BYTES$}").as_bytes(), 0)?;
        Ok(done)
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
    pub(super) fn enter(&self, grant: &Grant, valid: impl FnOnce() -> (u64, Option<u64>)) -> io::Result<bool> {
        self.change(|state| {
            let (now, until) = valid();
            let Some(until) = until else { return self.late(state, grant).map(|()| false) };
            state.count(Count::Sections);
            let other = Some(state.occupant).filter(|other| *other != 0 && *other != grant.worker);
            match other {
                Some(other) if self.is_doomed(other)? => {}
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
    pub(super) fn write(&self, grant: &Grant, valid: impl FnOnce() -> (u64, Option<u64>)) -> io::Result<()> {
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
            // Nobody entered with a higher one: either nobody did at all, or tokens do not rise.
            Some(token) if token > state.newest => {
                state.newest = token;
                state.count(Count::LateAlone);
            }
            Some(_) => self.fault(state, Count::LateTaken, grant, "a late write was not refused by its token")?,
        }
        Ok(())
    }

    pub(super) fn leave(&self, worker: u64) -> io::Result<()> {
        self.change(|state| {
            if state.occupant == worker {
                (state.occupant, state.valid_until) = (0, 0);
            }
            Ok(())
        })
    }

    pub(super) fn count(&self, what: Count) -> io::Result<()> {
        self.change(|state| {
            state.count(what);
            Ok(())
        })
    }

    /// Counts a fault of `grant`, and notes what it was.
    pub(super) fn note(&self, what: Count, grant: &Grant, said: &str) -> io::Result<()> {
        self.change(|state| self.fault(state, what, grant, said))
    }

    pub(super) fn counted(&self, what: Count) -> io::Result<u64> {
        Ok(self.read()?.counts[what as usize])
    }

    pub(super) fn occupant(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.read()?.occupant).filter(|worker| *worker != 0))
    }

    /// The worker is about to be killed: what it holds ends then, whatever its guard said.
    pub(super) fn doom(&self, worker: u64) -> io::Result<()> {
        self.doomed.write_all_at(&[1], worker)
    }

    fn is_doomed(&self, worker: u64) -> io::Result<bool> {
        let mut byte = [0];
        Ok(self.doomed.read_at(&mut byte, worker)? == 1 && byte == [1])
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

    /// What is not nothing, but for how many there were.
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
        register.doom(1).unwrap();
        register.enter(&grant(2, 2), || (1, Some(9))).unwrap();
        assert_eq!(counted(&register), []);
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
