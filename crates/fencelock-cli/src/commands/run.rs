//! `fencelock run`: takes the lock, runs a command under it, and never lets the command outlive the lock.

use std::ffi::OsString;
use std::future::pending;
use std::iter::repeat;
use std::os::unix::process::CommandExt as _;
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use fencelock::capability::Liveness;
use fencelock::inspect::Contender;
use fencelock::jobs::{self, Begun, JobRun};
use fencelock::recipes::{MultiGuard, Router};
use fencelock::time::{Clock as _, Moment, SystemClock};
use fencelock::{AnyGuard, Client, Error, ErrorKind, GuardError, GuardState, Name, Retry};
use futures_util::future::{join_all, try_join_all};
use nix::sys::signal::Signal;
use tokio::time::timeout;

use super::acquire::Waiting;
use super::note;
use super::once::{self, Once, SLOT_VARIABLE};
use super::report::{Cause, EndReport};
use super::several::{self, Home, lines, locks};
use super::supervise::{Ending, Limits, Supervised, certain_until};
use super::{FAREWELL, SILENCE, StoreArguments, connect, farewell, said_already};
use crate::arguments::{self, Permits};
use crate::job::Job;
use crate::nested::{Around, HELD_VARIABLE, Held, Holder, Mode};
use crate::output::{Failure, Outcome, chain, code, finish, never_wait, not_started, rounded, say};
use crate::settings::Chosen;
use crate::signals::{Signals, asks_for_an_end, code_of, die_of};

/// How long a release may delay the end once we are asked to end, or where the lock is lost or about to be and the command had to be
/// stopped.
const BRIEF_RELEASE: Duration = Duration::from_millis(300);

/// The variables of the command.
const NAME_VARIABLE: &str = "FENCELOCK_NAME";
const TOKEN_VARIABLE: &str = "FENCELOCK_TOKEN";

/// Run a command while holding a lock.
///
/// Waits for the lock without limit unless --wait or --try is given. The lock is a mutex unless --shared, --exclusive or --permits makes
/// it a read-write lock or a semaphore; a name is one of these at a time. Of several names all are held or none; they are mutexes. The
/// command runs in a process group of its own, gets the terminal if there is one, and finds FENCELOCK_NAME, FENCELOCK_TOKEN and
/// FENCELOCK_HELD in its environment. TERM, INT, HUP, QUIT, USR1, USR2 and WINCH are passed on to its group. A wait that is suspended
/// gives its place back, and joins anew when it is continued. A lock inside itself is refused, but for --shared under --shared.
#[derive(Debug, Default, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Run {
    /// The lock's name: 1 to 512 bytes of UTF-8. Of several (up to 100), the command runs while it holds all of them.
    #[arg(required = true, value_name = "NAME", value_parser = arguments::name)]
    pub(super) names: Vec<Name>,
    /// Take a read-write lock for reading: together with other readers, and never while another command holds it with
    /// --exclusive.
    #[arg(long, conflicts_with_all = ["exclusive", "permits"])]
    pub(super) shared: bool,
    /// Take a read-write lock for writing: alone, where others take it with --shared.
    #[arg(long, conflicts_with = "permits")]
    pub(super) exclusive: bool,
    /// Take K of the N permits of a semaphore; every user of the name must give the same N.
    #[arg(long, value_name = "K/N", value_parser = arguments::permits)]
    pub(super) permits: Option<Permits>,
    #[command(flatten)]
    pub(super) waiting: Waiting,
    /// Keep trying for this long to reach the store, and count --wait only from then on; as long as --wait if not given, 30s
    /// without either, and a single attempt with --try.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration_or_zero, allow_hyphen_values = true)]
    pub(super) connect_wait: Option<Duration>,
    /// Stop the command when it has run this long.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration, allow_hyphen_values = true)]
    pub(super) max_hold: Option<Duration>,
    /// Hold the lock until this long after the start of the command, also when it has ended: a job that every host starts at the
    /// same time runs on one of them. TERM or INT ends it early. A store must be named.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration, allow_hyphen_values = true)]
    pub(super) hold_at_least: Option<Duration>,
    #[command(flatten)]
    pub(super) once: Once,
    /// How long a command may run after its lock is lost, while others may have the lock: 0 kills it at once.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = arguments::duration_or_zero,
          allow_hyphen_values = true)]
    pub(super) grace_after_loss: Duration,
    /// With file:, end the command if fencelock itself is killed, instead of leaving the lock to it.
    #[arg(long)]
    pub(super) close: bool,
    #[command(flatten)]
    pub(super) task: Task,
    /// Whether the command runs again once the lock is held again, after it was stopped because the lock was lost.
    #[arg(skip)]
    pub(super) again: bool,
    /// The purpose written on the lock while it is held.
    #[arg(skip)]
    pub(super) address: Option<String>,
}

/// The command of `run` and of `elect`.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Task {
    /// The purpose of the lock, which other clients can read; by default the command's name.
    #[arg(long, value_name = "TEXT", value_parser = arguments::purpose)]
    pub(super) purpose: Option<String>,
    /// A command that is stopped is sent TERM, and KILL after this time, or earlier if the lock would expire.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = arguments::duration_or_zero,
          allow_hyphen_values = true)]
    pub(super) grace: Duration,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

const EXIT_CODES: &str = "\
Exit codes: the command's own (128 + n if signal n ended it), or
  64   wrong usage               126  the command cannot be executed
  65   another kind of lock has the name, or the store holds unknown data
  69   store unreachable         127  the command was not found
  70   a bug                     128 + n  signal n while waiting for the lock
  71   no room, descriptors or processes
  72   another command of this host waits for a run of this job already
  73   a fencelock run around this one holds the lock, and waits for this one
  74   output that could not be written
  75   busy or timed out (-E)
  76   the lock was lost or --max-hold was over, and the command was stopped
  77   the store refused: permissions, credentials
  78   the configuration is wrong or missing";

impl Run {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let is_of_all_hosts = self.again || self.once.is_asked_for() || self.hold_at_least.is_some();
        let store = if is_of_all_hosts { &store.named() } else { store };
        let stores = store.choose_all(self.waiting.quiet, &self.names)?;
        stores.iter().try_for_each(Chosen::refuse_memory)?;
        let around = Around::this_process()?;
        self.check_names(stores.len() > 1)?;
        let mut shared = None;
        for (chosen, name) in stores.iter().flat_map(|chosen| self.names.iter().map(move |name| (chosen, name))) {
            shared = around.sharing(&chosen.locks(), name, self.mode())?.or(shared);
        }
        match self.run_to_its_end(&stores, shared).await? {
            Ending::Code(code) => Ok(code),
            Ending::Signal(signal) => {
                finish();
                die_of(signal);
                Ok(code_of(signal))
            }
        }
    }

    /// Refuses several names that cannot be taken together, and names that move and are no mutexes.
    fn check_names(&self, they_move: bool) -> Outcome<()> {
        let wrong = |what: String| Err(Failure::new(code::USAGE, what));
        let [first, others @ ..] = &self.names[..] else { return wrong("no lock is named".to_owned()) };
        if others.len() >= several::MOST {
            return wrong(format!("{} locks are named; a command takes {} at most", self.names.len(), several::MOST));
        }
        if they_move && (self.once.is_asked_for() || self.mode() != Mode::Mutex) {
            return wrong(format!(
                "{} cannot be held with these options while it moves from one store to another: only mutexes move",
                locks(&self.names)
            ));
        }
        if !others.is_empty() && self.once.is_asked_for() {
            return wrong("--once-per and --slot take one name, which is that of the job".to_owned());
        }
        if !others.is_empty() && self.mode() != Mode::Mutex {
            return wrong(format!(
                "several locks ({first} and others) are mutexes: --shared, --exclusive and --permits take one name"
            ));
        }
        let mut sorted: Vec<_> = self.names.iter().collect();
        sorted.sort();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => wrong(format!("the lock {} is named twice: name each once", twice[0])),
            None => Ok(()),
        }
    }

    fn mode(&self) -> Mode {
        Mode::of(self.shared, self.exclusive, self.permits)
    }

    /// A waiter for the end of the lock around us keeps us from one of our own: the command runs as a part of that lock's.
    /// Returns only with a failure.
    fn become_the_command(&self, held: &Held) -> Failure {
        let Some((program, arguments)) = self.task.command.split_first() else { return Failure::silent(code::USAGE) };
        let mut command = Command::new(program);
        command.args(arguments).env(NAME_VARIABLE, &held.name);
        match &held.token {
            Some(token) => command.env(TOKEN_VARIABLE, token),
            None => command.env_remove(TOKEN_VARIABLE),
        };
        not_started(program, &command.exec())
    }

    async fn run_to_its_end(&self, stores: &[Chosen], shared: Option<&Held>) -> Outcome<Ending> {
        let mut signals = Signals::take_over()?;
        never_wait();
        // How much of --wait has passed. The time that we are stopped is not part of it.
        let mut waited = Duration::ZERO;
        loop {
            match self.try_to_run(stores, shared, &mut waited, &mut signals).await? {
                Round::Ended(ending) => return Ok(ending),
                Round::Lost => {}
                Round::Asked(stop) if !asks_for_an_end(stop) => signals.stop(stop),
                Round::Asked(signal) => return Ok(interrupted(signal)),
            }
        }
    }

    /// Connects, waits for the lock and runs the command. A signal ends the wait, which leaves nothing in the store: a stopped process
    /// must block no other.
    async fn try_to_run(
        &self,
        stores: &[Chosen],
        shared: Option<&Held>,
        waited: &mut Duration,
        signals: &mut Signals,
    ) -> Outcome<Round> {
        let mut began = Instant::now();
        let connect_limit = self.connect_limit(*waited);
        let connecting = stores.iter().map(|chosen| async move {
            let client = connect(Client::builder().connect_timeout(connect_limit), chosen, true).await?;
            Outcome::Ok(Home { chosen: chosen.clone(), client })
        });
        let connected = tokio::select! {
            homes = try_join_all(connecting) => Ok(homes?),
            signal = signals.asked() => Err(signal),
            () = self.say_that_it_is_not_reached(stores, connect_limit) => pending().await,
        };
        if self.connect_wait.is_some() {
            began = Instant::now();
        }
        let homes = match connected {
            Ok(homes) => homes,
            Err(signal) => {
                *waited += began.elapsed();
                return Ok(Round::Asked(signal));
            }
        };
        let limit = self.waiting.wait.map_or(Duration::MAX, |wait| wait.saturating_sub(*waited + began.elapsed()));
        let mut is_given_back = true;
        let ended = said_already(self.run_with(&homes, shared, limit, signals, &mut is_given_back).await);
        // The lock is released or lost by now, and a dropped acquire is cleaned up behind us; only the session is left.
        let has_failed = ended.is_err() || !is_given_back;
        let goodbye = join_all(homes.iter().map(|home| farewell(&home.client, has_failed)));
        match ended {
            // Requests for an end in the meantime are read afterwards.
            Ok(Round::Asked(stop)) if !asks_for_an_end(stop) => drop(goodbye.await),
            _ => tokio::select! {
                _ = goodbye => {}
                _ = signals.asked_to_end() => {}
            },
        }
        *waited += began.elapsed();
        ended
    }

    /// How long the store may be out of reach at the start, when `waited` of --wait has passed. The library waits for a later
    /// outage, for the same time.
    fn connect_limit(&self, waited: Duration) -> Duration {
        let otherwise = if self.waiting.at_once { Duration::ZERO } else { Retry::default().give_up_after };
        self.connect_wait.or(self.waiting.wait.map(|wait| wait.saturating_sub(waited))).unwrap_or(otherwise)
    }

    async fn run_with(
        &self,
        homes: &[Home],
        shared: Option<&Held>,
        limit: Duration,
        signals: &mut Signals,
        is_given_back: &mut bool,
    ) -> Outcome<Round> {
        if self.address.is_some() {
            note::check_notes(homes)?;
        }
        let around = Around::this_process()?;
        for Home { chosen, client } in homes {
            around.refuse_unlike(&chosen.locks(), client, &self.names, self.mode()).await?;
        }
        let taken = match shared {
            // Asks without waiting: a contender ahead waits for the end of the lock around us, so a wait would never end.
            Some(held) => match self.take(homes, limit, true).await {
                Err(error) if error.kind() == ErrorKind::Busy => {
                    join_all(homes.iter().map(|home| farewell(&home.client, false))).await;
                    return Err(self.become_the_command(held));
                }
                taken => taken.map_err(|error| self.not_acquired(error, homes))?,
            },
            None => tokio::select! {
                biased;
                signal = signals.asked() => return Ok(Round::Asked(signal)),
                taken = self.acquire(homes, limit) => taken?,
            },
        };
        let (guard, run) = match taken {
            Taken::Held(guard, run) => (guard, run),
            Taken::Already(last) => {
                if !self.waiting.quiet {
                    once::say_that_it_ran(&self.names[0], &last);
                }
                return Ok(Round::Ended(Ending::Code(0)));
            }
        };
        if self.address.is_some()
            && let Err(failure) = note::write_address(homes, &guard, self.address.as_deref()).await
        {
            if failure.code == code::USAGE {
                return Err(failure);
            }
            // Leading continues without it: an outage of that moment ends no candidacy.
            say(format_args!("the address is not on the lock: {}", failure.message.unwrap_or_default()));
        }
        let mut report = EndReport::new(homes);
        let ended = self.hold(homes, (guard, run), signals, is_given_back, &mut report).await?;
        let is_again = self.again && report.stopped && !signals.must_end();
        Ok(if is_again { Round::Lost } else { Round::Ended(ended) })
    }

    /// Takes the requested locks within `limit`; `at_once` does not wait for them.
    async fn take(&self, homes: &[Home], limit: Duration, at_once: bool) -> fencelock::Result<Taken> {
        let purpose = self.task.purpose.clone().unwrap_or_else(|| purpose_of(&self.task.command));
        let Some(job) = self.once.job(&homes[0].client, &self.names[0])? else {
            return Ok(Taken::Held(self.take_locks(homes, purpose, limit, at_once).await?, None));
        };
        match once::begin(&job.purpose(purpose).timeout(limit), at_once).await? {
            // The run has one guard of the lock, and this is another one.
            Begun::Run(run) => Ok(Taken::Held(run.guard().reenter()?.into(), Some(run))),
            Begun::Already(last) => Ok(Taken::Already(last)),
        }
    }

    async fn take_locks(
        &self,
        homes: &[Home],
        purpose: String,
        limit: Duration,
        at_once: bool,
    ) -> fencelock::Result<MultiGuard> {
        let client = &homes[0].client;
        let (name, homes) = (&self.names[0], &homes[1..]);
        if self.names.len() > 1 || !homes.is_empty() {
            let router = Router::new([("**", client.clone())])?;
            let router = homes.iter().try_fold(router, |router, new| router.migrate("**", new.client.clone()))?;
            let locks = router.multi_lock(&self.names)?.purpose(purpose).timeout(limit);
            return if at_once { locks.try_acquire().await } else { locks.acquire().await };
        }
        if self.shared || self.exclusive {
            let lock = client.rwlock(name)?.purpose(purpose).timeout(limit);
            return match (self.shared, at_once) {
                (true, true) => Ok(lock.try_read().await?.into()),
                (true, false) => Ok(lock.read().await?.into()),
                (false, true) => Ok(lock.try_write().await?.into()),
                (false, false) => Ok(lock.write().await?.into()),
            };
        }
        if let Some(Permits { count, capacity }) = self.permits {
            let lock = client.semaphore(name, capacity)?.permits(count).purpose(purpose).timeout(limit);
            let acquired = if at_once { lock.try_acquire().await } else { lock.acquire().await };
            return Ok(acquired?.into());
        }
        let lock = client.mutex(name)?.purpose(purpose).timeout(limit);
        let acquired = if at_once { lock.try_acquire().await } else { lock.acquire().await };
        Ok(acquired?.into())
    }

    async fn acquire(&self, homes: &[Home], limit: Duration) -> Outcome<Taken> {
        let acquired = if self.waiting.at_once {
            self.take(homes, limit, self.waiting.at_once).await
        } else {
            tokio::select! {
                acquired = self.take(homes, limit, false) => acquired,
                () = self.say_for_whom(homes) => pending().await,
            }
        };
        acquired.map_err(|error| self.not_acquired(error, homes))
    }

    /// Prints once that the store is not reached, if that takes long.
    async fn say_that_it_is_not_reached(&self, stores: &[Chosen], limit: Duration) {
        if !self.waiting.quiet {
            tokio::time::sleep(SILENCE).await;
            let tried = match limit {
                Duration::ZERO => "once".to_owned(),
                limit => format!("for {:?}", rounded(limit)),
            };
            say(format_args!("{} is not reached yet, and is tried {tried}", several::shown(stores)));
        }
        pending().await
    }

    /// Prints once the lock and holders that we wait for, if we wait for long.
    async fn say_for_whom(&self, homes: &[Home]) {
        if !self.waiting.quiet {
            tokio::time::sleep(SILENCE).await;
            // The first of the locks that another client holds.
            let (mut found, mut at) = (Ok(None), &homes[0]);
            for (name, home) in self.names.iter().flat_map(|name| homes.iter().map(move |home| (name, home))) {
                found = home.client.contention(name).await.map(Some);
                at = home;
                let ours = |holder: &Contender| holder.owner.as_ref() == Some(home.client.owner());
                if !matches!(&found, Ok(Some(found)) if found.holder.as_ref().is_none_or(ours)) {
                    break;
                }
            }
            let which = found.as_ref().ok().and_then(Option::as_ref).map_or(&self.names[0], |found| &found.name);
            let waiting = format!("waiting for {which} in {}", at.chosen.shown());
            match found {
                Ok(Some(contention)) => say(format_args!("{waiting}, {contention}")),
                Ok(None) => say(waiting),
                Err(error) => say(format_args!("{waiting}, holder unknown: {}", chain(&error))),
            }
        }
        pending().await
    }

    fn not_acquired(&self, error: Error, homes: &[Home]) -> Failure {
        let is_of_permits = |(key, claim): (&str, &str)| key == "theirs" && claim.contains(" of ");
        let hint = match self.permits {
            Some(Permits { capacity, .. }) if error.context().any(is_of_permits) => format!(
                "; to change the number of permits, wait until the queue is empty, and then start all with {capacity}"
            ),
            _ => String::new(),
        };
        let stores = several::shown(homes.iter().map(|home| &home.chosen));
        let message = format!("{}; the store is {stores}{hint}", chain(&error));
        let code = match error.kind() {
            ErrorKind::QueueFull => code::WAITS,
            _ => match Failure::from(error).code {
                code::BUSY => self.waiting.busy_exit_code,
                code => return Failure::new(code, message),
            },
        };
        if self.waiting.quiet { Failure::silent(code) } else { Failure::new(code, message) }
    }

    /// Holds the lock on until then, though the command has ended, unless the lock is lost or a signal asks for an end, or did. Says whether
    /// the command ended while it was held.
    async fn stay(&self, guard: &MultiGuard, until: Moment, signals: &mut Signals) -> bool {
        if signals.must_end() || matches!(guard.state(), GuardState::Lost(_)) {
            return false;
        }
        tokio::select! {
            biased;
            _ = signals.asked_to_end() => {}
            _ = guard.lost() => {}
            () = SystemClock.sleep_until(until) => {}
            () = self.say_that_it_is_held_on() => {}
        }
        true
    }

    fn were(&self) -> String {
        format!("{} {}", locks(&self.names), if self.names.len() == 1 { "was" } else { "were" })
    }

    async fn say_that_it_is_held_on(&self) {
        if !self.waiting.quiet {
            tokio::time::sleep(SILENCE).await;
            say(format_args!("the command has ended, and --hold-at-least holds {} on", locks(&self.names)));
        }
        pending().await
    }

    fn variables(
        &self,
        homes: &[Home],
        guard: &MultiGuard,
        run: Option<&jobs::Run>,
    ) -> Outcome<[(&'static str, Option<String>); 4]> {
        let token_of = |guard: &AnyGuard| guard.token().map(|token| token.to_string());
        // A name has a guard in each store.
        let by = homes.iter().filter_map(|Home { chosen, client }| {
            Holder::this_process((chosen.locks(), client.owner().client), self.mode(), purpose_of(&self.task.command))
        });
        let by: Vec<_> = by.collect();
        let guards =
            (0..by.len()).flat_map(|at| guard.guards().iter().skip(at).step_by(homes.len()).zip(repeat(&by[at])));
        let held = guards.map(|(guard, by)| by.clone().holds(guard.name(), token_of(guard)));
        let named_guards = several::named_guards(guard, homes);
        Ok([
            (NAME_VARIABLE, lines(named_guards.clone(), |guard| Some(guard.name().to_string()))),
            (TOKEN_VARIABLE, lines(named_guards, token_of)),
            (HELD_VARIABLE, Around::this_process()?.and(held)?),
            (SLOT_VARIABLE, run.map(|run| run.this().slot.clone())),
        ])
    }

    /// Runs the command under `guard` to its end, and gives the lock back.
    async fn hold(
        &self,
        homes: &[Home],
        (guard, run): (MultiGuard, Option<Box<jobs::Run>>),
        signals: &mut Signals,
        is_given_back: &mut bool,
        report: &mut EndReport,
    ) -> Outcome<Ending> {
        let variables = self.variables(homes, &guard, run.as_deref())?;
        let limits = Limits::new(self.task.grace, self.grace_after_loss, self.max_hold, several::timing_of(homes));
        // A command that does not keep its lock alive must end with fencelock.
        let lives_on = |home: &Home| home.client.capability().liveness == Liveness::Process;
        let bound = self.close || !homes.iter().all(lives_on);
        let certain_until = certain_until(&guard);
        let held_until = self.hold_at_least.map(|least| SystemClock.now().after(least));
        let mut stayed = false;
        // After a pause of this process the lock may be lost already: the release reports that.
        let ended =
            match guard.check().map(|()| Job::start(&self.task.command, &variables, bound.then_some(certain_until))) {
                Ok(Ok(job)) => {
                    let ended = Supervised::new(&guard, report, job, limits, certain_until).serve(signals).await;
                    // A command that could not begin has done no work, so that another host must do it.
                    let not_begun = [code::NOT_FOUND, code::NOT_EXECUTABLE].map(Ending::Code);
                    if let (Ok(ending), Some(until)) = (&ended, held_until)
                        && !not_begun.contains(ending)
                    {
                        stayed = self.stay(&guard, until, signals).await;
                    }
                    ended
                }
                Ok(Err(failure)) => Err(failure),
                Err(_) => Ok(Ending::Code(code::LOST)),
            };
        // Where a command was stopped because its lock is lost or about to be, fencelock does not wait for a silent store.
        let is_useless = matches!(ended, Ok(Ending::Code(code::LOST))) && limits.are_reached_by(&guard);
        report.stopped = is_useless || report.has_reported();
        let limit = if is_useless { BRIEF_RELEASE } else { Duration::MAX };
        if let Some(run) = run.filter(|_| !is_useless) {
            once::note_the_end(run, &ended, report, signals).await;
        }
        if self.address.is_some() && !is_useless {
            // If this fails, the note stays. Observers see that its term has ended.
            let _ = timeout(FAREWELL, note::write_address(homes, &guard, None)).await;
        }
        let ended = match timeout(limit, self.give_back(guard, signals)).await {
            Err(_) | Ok(Some(Ok(()))) => ended,
            Ok(None) => {
                *is_given_back = false;
                say(format_args!("{} not given back: we received a signal to end", self.were()));
                ended
            }
            Ok(Some(Err(failed))) => {
                let error = chain(failed.error());
                let guard = failed.into_guard();
                match guard.state() {
                    GuardState::Lost(loss) if stayed => {
                        report.tell(
                            &guard,
                            Cause::Lost(loss),
                            "before --hold-at-least was over and after the command had ended",
                        );
                        ended
                    }
                    GuardState::Lost(loss) => {
                        report.tell(&guard, Cause::Lost(loss), "the command has ended");
                        ended.map(|_| Ending::Code(code::LOST))
                    }
                    _ => {
                        *is_given_back = false;
                        say(format_args!("{} not given back: {error}", self.were()));
                        ended
                    }
                }
            }
        };
        report.finish().await;
        ended
    }

    /// Gives the lock back. A store that cannot do it for the moment is asked again for one request deadline, or until we are asked to end;
    /// then there is no answer.
    async fn give_back(&self, guard: MultiGuard, signals: &mut Signals) -> Option<Released> {
        let mut releasing = pin!(guard.release_or_keep());
        tokio::select! {
            biased;
            released = &mut releasing => Some(released),
            _ = signals.asked_to_end() => {
                let released = timeout(BRIEF_RELEASE, releasing).await.ok();
                released.filter(|released| !matches!(released, Err(failed) if failed.error().is_retryable()))
            }
        }
    }
}

/// The outcome of a release.
type Released = Result<(), GuardError<MultiGuard>>;

/// The outcome of asking for the lock.
enum Taken {
    /// The lock is held, for this run if the command is a job.
    Held(MultiGuard, Option<Box<jobs::Run>>),
    /// The lock is not held: the job's slot has had its run.
    Already(JobRun),
}

/// The outcome of a try to run the command.
enum Round {
    Ended(Ending),
    /// The lock was lost, and is to be had anew.
    Lost,
    /// This signal came before the command began, and asks for an end or a stop.
    Asked(Signal),
}

/// The wait ended by `signal`: loops and scripts around us end with us when it was the keyboard's.
fn interrupted(signal: Signal) -> Ending {
    match signal {
        Signal::SIGINT | Signal::SIGQUIT => Ending::Signal(signal),
        other => Ending::Code(code_of(other)),
    }
}

/// The program's name, which says enough to recognise a job and holds no secrets that arguments may hold.
fn purpose_of(command: &[OsString]) -> String {
    let program = command.first().and_then(|program| std::path::Path::new(program).file_name()?.to_str());
    let fits = program.filter(|program| arguments::purpose_fault(program).is_none());
    fits.unwrap_or("a command").to_owned()
}
