//! `fencelock acquire` and `fencelock release`: a lock for the rest of a script.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use clap::Args;
use fencelock::{Client, Name};
use nix::sys::signal::SigSet;
use nix::unistd::{chdir, setsid};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::r#break::holders;
use super::{CONNECT, SILENCE, StoreArguments, connect, farewell, said_already};
use crate::arguments;
use crate::job::ended_early;
use crate::keeper::{self, HELD, Keeper, Orders, Watched, orders, say_held};
use crate::locks;
use crate::nested::{Around, Mode};
use crate::output::{Failure, Outcome, chain, code, never_wait, say};
use crate::processes::close;
use crate::settings::Chosen;
use crate::show::{Shown, print};
use crate::signals::{Signals, code_of};

/// The exit code of `release` when it released nothing.
const NOTHING: u8 = 1;
/// How long the process that keeps a lock may take to give it back.
const GIVING_BACK: Duration = Duration::from_secs(30);

/// Take a lock for the rest of a script.
///
/// Waits for the mutex, and leaves a process in the background that holds it as long as the process --pid lives, or until `fencelock
/// release`; prints the fencing token. When the lock is lost, that process is sent TERM; nothing stops one that ignores it, or is stopped.
/// `fencelock run` does: use it where a command can be given.
#[derive(Debug, Args)]
pub(crate) struct Acquire {
    /// The lock's name: 1 to 512 bytes of UTF-8.
    #[arg(value_parser = arguments::name)]
    name: Name,
    /// The process that the lock is for, as in --pid $$. The process must be of this user, on this host.
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pid: i32,
    #[command(flatten)]
    pub(super) waiting: Waiting,
    /// The purpose of the lock, which other clients can read.
    #[arg(long, value_name = "TEXT", value_parser = arguments::purpose)]
    purpose: Option<String>,
}

/// The limit of a wait, and its messages.
#[derive(Debug, Default, Args)]
pub(super) struct Waiting {
    /// Give up after waiting this long (as in 500ms, 30s, 1h 30m); 0 is --try.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration_or_zero, allow_hyphen_values = true)]
    pub(super) wait: Option<Duration>,
    /// Give up at once if the lock is not free.
    #[arg(long = "try", conflicts_with = "wait")]
    pub(super) at_once: bool,
    /// Exit with this code when the lock was busy or the wait limit passed.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = code::BUSY, allow_negative_numbers = true)]
    pub(super) busy_exit_code: u8,
    /// Say nothing about the default store, about waiting and about a busy lock.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Give back a lock that `fencelock acquire` took for this script.
///
/// The holder in the background is found by the owner of the lock. The holder must hold the lock for --pid, or for a process that this
/// command runs under: a lock that another script took is kept. Exits with 1 when nothing was given back.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The lock's name.
    #[arg(value_parser = arguments::name)]
    name: Name,
    /// The process that owns the lock; by default the script around this command.
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
}

/// Not for people: `acquire` starts this, which holds the lock.
#[derive(Debug, Args)]
pub(crate) struct Keep {
    pid: i32,
    start: u64,
    #[arg(long)]
    close: Vec<i32>,
    #[command(flatten)]
    waiting: Waiting,
    #[arg(long, value_parser = arguments::purpose)]
    purpose: Option<String>,
    #[arg(last = true, value_parser = arguments::name)]
    name: Name,
}

impl Acquire {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        if self.waiting.busy_exit_code == 0 {
            return Err(Failure::new(code::USAGE, "-E 0 lets a script go on without the lock: choose another code"));
        }
        let watched = Watched::open(self.pid)?;
        let chosen = store.choose(self.waiting.quiet, std::slice::from_ref(&self.name))?;
        chosen.refuse_memory()?;
        Around::this_process()?.sharing(&chosen.locks(), &self.name, Mode::Mutex)?;
        let (mut keeper, held) = self.start_keeper(store, &watched)?;
        let held = tokio::select! {
            held = held => held.ok().flatten(),
            () = self.say_that_it_waits(&chosen) => None,
        };
        let Some(token) = held else {
            let status =
                keeper.wait().map_err(|error| Failure::os("cannot wait for the keeper of the lock", &error))?;
            return Err(ended_early("the keeper of the lock", status));
        };
        // Without this byte the keeper releases the lock when its stdin ends.
        let confirmed = keeper.stdin.take().map(|mut stdin| stdin.write_all(b"k"));
        confirmed.unwrap_or(Ok(())).map_err(|error| Failure::os("the keeper of the lock is gone", &error))?;
        if !token.is_empty() {
            print(&format!("{token}\n"))?;
        }
        Ok(0)
    }

    /// Starts the keeper; the receiver gets the token of its lock, or nothing once the keeper is gone.
    fn start_keeper(
        &self,
        store: &StoreArguments,
        watched: &Watched,
    ) -> Outcome<(Child, oneshot::Receiver<Option<String>>)> {
        let failed = |error: &io::Error| Failure::os("cannot start the keeper of the lock", error);
        let mut command = keeper::command(watched)?;
        command.args(store.again());
        command.args(self.waiting.wait.map(|wait| format!("--wait={}ms", wait.as_millis())));
        command.args(self.waiting.at_once.then_some("--try")).args(self.waiting.quiet.then_some("--quiet"));
        command.arg(format!("-E{}", self.waiting.busy_exit_code));
        let purpose = self.purpose.clone().unwrap_or_else(|| format!("process {}", self.pid));
        command.arg(format!("--purpose={purpose}"));
        keeper::named(&mut command, &self.name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed(&io::Error::other("no pipe")));
        };
        let (sender, held) = oneshot::channel();
        let listen = move || {
            let mut line = String::new();
            let is_read = BufReader::new(stdout).read_line(&mut line).is_ok();
            let held = line.strip_prefix(HELD).filter(|_| is_read).and_then(|token| token.strip_suffix('\n'));
            let token = held.map(|token| token.trim().to_owned());
            if token.is_none() {
                // Passes on the messages of the keeper until its end.
                let _ = io::copy(&mut BufReader::new(stderr), &mut io::stderr());
            }
            let _ = sender.send(token);
        };
        thread::Builder::new().name("fencelock-hear".to_owned()).spawn(listen).map_err(|error| failed(&error))?;
        Ok((child, held))
    }

    /// Prints once that the command waits, after a long wait.
    async fn say_that_it_waits(&self, chosen: &Chosen) {
        if !self.waiting.quiet {
            tokio::time::sleep(SILENCE).await;
            say(format_args!("waiting for {} in {}", self.name, chosen.shown()));
        }
        std::future::pending().await
    }
}

impl Keep {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        close(&self.close);
        let watched = Watched::open(self.pid)?;
        if watched.start != self.start {
            return Err(self.process_ended());
        }
        let chosen = store.choose(true, std::slice::from_ref(&self.name))?;
        // A session of its own, which no signal of the keyboard or of a closing terminal reaches.
        setsid().map_err(|error| Failure::os("cannot start a session", &error.into()))?;
        let _ = chdir("/");
        // Some signals end the wait. Once the lock is held, a signal has no effect: a service may be stopped by any.
        let mut signals = Signals::take_over()?;
        SigSet::all().thread_block().map_err(|error| Failure::os("cannot block signals", &error.into()))?;
        never_wait();
        let limit = if self.waiting.at_once { Duration::ZERO } else { self.waiting.wait.unwrap_or(CONNECT) };
        let client = tokio::select! {
            biased;
            failure = self.given_up(&watched, &mut signals) => return Err(failure),
            client = connect(Client::builder().connect_timeout(limit), &chosen, false) => client?,
        };
        if client.owner().pid == 0 {
            let message = "owner=opaque hides which process holds the lock: `acquire` and `release` need it";
            return Err(Failure::new(code::USAGE, message));
        }
        let mut orders = orders(client.owner().client)?;
        let ended = said_already(self.keep(&client, &chosen, (&watched, &mut signals), &mut orders).await);
        farewell(&client, ended.is_err()).await;
        ended
    }

    /// Completes when the wait must end without the lock.
    async fn given_up(&self, watched: &Watched, signals: &mut Signals) -> Failure {
        tokio::select! {
            signal = signals.asked_to_end() => {
                Failure::new(code_of(signal), format!("{signal} ended the wait for the lock {}", self.name))
            }
            () = watched.ended() => self.process_ended(),
        }
    }

    fn process_ended(&self) -> Failure {
        let message = format!("the process {} has ended, and the lock {} is not held", self.pid, self.name);
        Failure::new(code::USAGE, message)
    }

    async fn keep(
        &self,
        client: &Client,
        chosen: &Chosen,
        (watched, signals): (&Watched, &mut Signals),
        (confirmed, release): &mut Orders,
    ) -> Outcome<u8> {
        let name = &self.name;
        let held = holders(client, name).await?;
        let own = |keeper: &Keeper| keeper.kept_for == self.pid;
        if held.iter().find_map(|holder| Keeper::of(client, name, holder)).as_ref().is_some_and(own) {
            let message = format!("the lock {name} in {} is held for the process {} already", chosen.shown(), self.pid);
            return Err(Failure::new(code::NESTED, message));
        }
        let around = Around::this_process()?;
        around.refuse_unlike(&chosen.locks(), client, std::slice::from_ref(name), Mode::Mutex).await?;
        let lock = client.mutex(name)?.purpose(self.purpose.clone().unwrap_or_default());
        let acquire = async {
            match self.waiting.wait {
                _ if self.waiting.at_once => lock.try_acquire().await,
                Some(wait) => lock.acquire_within(wait).await,
                None => lock.acquire().await,
            }
        };
        let guard = tokio::select! {
            biased;
            // `acquire` is gone, and reads no message.
            _ = &mut *confirmed => return Err(Failure::silent(code::IO)),
            failure = self.given_up(watched, signals) => return Err(failure),
            acquired = acquire => acquired.map_err(|error| self.not_acquired(&error, chosen))?,
        };
        let token = guard.token().map(|token| token.to_string());
        if say_held(token.as_deref()).is_ok() && confirmed.await == Ok(true) {
            tokio::select! {
                biased;
                _ = guard.lost() => {
                    watched.end();
                    return Ok(code::LOST);
                }
                () = watched.ended() => {}
                Ok(()) = release => {}
            }
        }
        guard.release().await?;
        Ok(0)
    }

    fn not_acquired(&self, error: &fencelock::Error, chosen: &Chosen) -> Failure {
        let message = format!("{}; the store is {}", chain(error), chosen.shown());
        match crate::output::code_of(error) {
            code::BUSY if self.waiting.quiet => Failure::silent(self.waiting.busy_exit_code),
            code::BUSY => Failure::new(self.waiting.busy_exit_code, message),
            code => Failure::new(code, message),
        }
    }
}

impl Release {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let (chosen, client) = store.connect_to_look(true, std::slice::from_ref(&self.name)).await?;
        let nothing = |why: String| {
            let message = format!("{why} {} in {}: nothing was given back", self.name, chosen.shown());
            Err(Failure::new(NOTHING, message))
        };
        let Some(client) = client else { return nothing("no client holds".to_owned()) };
        let held = holders(&client, &self.name).await.map_err(|error| error.with("store from", &chosen.origin))?;
        let Some(holder) = held.first() else { return nothing("no client holds".to_owned()) };
        let keeper = Keeper::of(&client, &self.name, holder);
        let is_meant = |keeper: &Keeper| self.pid.map_or_else(|| keeper.is_around_us(), |pid| keeper.kept_for == pid);
        let Some(keeper) = keeper.filter(is_meant) else {
            let now = locks::now(&client, &chosen).await;
            let who = Shown::new(&self.name, 1, holder, now).sentence();
            return nothing(format!("{who}, and not `fencelock acquire` for this script, holds"));
        };
        keeper.order_release().map_err(|error| Failure::os("cannot reach the process that keeps the lock", &error))?;
        let has_ended = timeout(GIVING_BACK, keeper.process.ended()).await.is_ok();
        let held = holders(&client, &self.name).await.map_err(|error| error.with("store from", &chosen.origin))?;
        if !has_ended || held.iter().any(|other| other.id == holder.id) {
            return nothing("the process that keeps the lock was asked to give it back, and still holds".to_owned());
        }
        Ok(0)
    }
}
