//! The verbs, one file each, and their common part: the store that they use.

mod acquire;
mod bench;
mod r#break;
mod completions;
mod doctor;
mod elect;
mod jobs;
mod ls;
#[cfg(feature = "servers")]
mod migrate;
mod note;
mod once;
mod report;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod several;
mod show;
mod stores;
mod supervise;
#[cfg(test)]
mod tests;
#[cfg(feature = "top")]
mod top;
mod verify;
mod wait;
#[cfg(any(feature = "serve", feature = "top"))]
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use fencelock::{Client, ClientBuilder, Health, Name};
use tracing::level_filters::LevelFilter;

use crate::arguments;
use crate::die_with_parent::Bound;
use crate::guardian::Guard;
use crate::libpq;
use crate::output::{Failure, Outcome, code, say};
use crate::settings::{self, Chosen, Options, Origin, STORE_VARIABLE, SYSTEM_FILE, Surroundings};
use crate::warnings::{self, LOG_VARIABLE};

/// Distributed locks for programs and scripts: first come first served, on the store that you run, or on a directory.
#[derive(Debug, Parser)]
#[command(name = "fencelock", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Fencelock {
    #[command(flatten)]
    store: StoreArguments,
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
The store is the first of: --store, the file of --config, FENCELOCK_STORE, fencelock.toml here, in
fencelock/ of the user's configuration directory, /etc/fencelock.toml, and a directory of this user
on this host.

Exit codes: 64 usage, 65 unknown data in the store, 69 store unreachable, 70 bug, 71 no resources,
74 output, 77 store refused, 78 configuration. `fencelock run --help` has those of `run`.";

#[derive(Debug, Clone, clap::Args)]
struct StoreArguments {
    /// The store: file:///dir, or any URL that `fencelock stores` lists. Give credentials by FENCELOCK_STORE or a file.
    #[arg(long, global = true, value_name = "URL", value_parser = arguments::store)]
    store: Option<String>,
    /// The configuration file, instead of fencelock.toml in its usual places: store = "URL", or the table routes.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "store")]
    config: Option<PathBuf>,
    /// Refuse to fall back to a directory on this host when no store is named, as jobs and elections do.
    #[arg(long, global = true)]
    require_store: bool,
    /// How much of what happens underneath is said on stderr; else FENCELOCK_LOG, else warn, and error with --quiet.
    #[arg(long, global = true, value_name = "LEVEL", value_parser = arguments::level)]
    log_level: Option<LevelFilter>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Run),
    Elect(elect::Elect),
    Acquire(acquire::Acquire),
    Release(acquire::Release),
    Wait(wait::Wait),
    Note(note::Note),
    Ls(ls::Ls),
    Jobs(jobs::Jobs),
    Show(show::Show),
    Break(r#break::Break),
    Doctor(doctor::Doctor),
    #[cfg(feature = "serve")]
    Serve(serve::Serve),
    #[cfg(feature = "top")]
    Top(top::Top),
    Stores(stores::Stores),
    #[cfg(feature = "servers")]
    Migrate(migrate::Migrate),
    Bench(bench::Bench),
    Verify(verify::Verify),
    Completions(completions::Completions),
    Man(completions::Man),
    #[command(hide = true)]
    BenchWorkers(bench::Workers),
    #[command(hide = true)]
    VerifyWorker(verify::VerifyWorker),
    #[command(hide = true)]
    Bound(Bound),
    #[command(hide = true)]
    Guard(Guard),
    #[command(hide = true)]
    Keep(acquire::Keep),
}

/// A wait that takes longer than this prints a message.
const SILENCE: Duration = Duration::from_secs(2);

/// How long the store is tried for at the start, where the wait has no limit.
const CONNECT: Duration = Duration::from_secs(30);

/// The exit code of `ls` and `show` when a lock can be held twice.
const BESIDE: u8 = 1;

/// Runs the verb; says with which code to exit.
pub(crate) async fn dispatch(fencelock: &Fencelock) -> Outcome<u8> {
    let store = &fencelock.store;
    let quiet = match &fencelock.verb {
        Verb::Run(run) => run.waiting.quiet,
        Verb::Elect(elect) => elect.quiet,
        Verb::Acquire(acquire) => acquire.waiting.quiet,
        _ => false,
    };
    // A helper process of `run` warns of nothing; `--log-level` may have overruled the variable.
    if !matches!(&fencelock.verb, Verb::Bound(_) | Verb::Guard(_)) {
        warnings::tell(store.effective_level(quiet)?);
    }
    match &fencelock.verb {
        Verb::Run(run) => run.run(store).await,
        Verb::Elect(elect) => elect.run(store).await,
        Verb::Acquire(acquire) => acquire.run(store).await,
        Verb::Release(release) => release.run(store).await,
        Verb::Wait(wait) => wait.run(store).await,
        Verb::Note(note) => note.run(store).await,
        Verb::Ls(ls) => ls.run(store).await,
        Verb::Jobs(jobs) => jobs.run(store).await,
        Verb::Show(show) => show.run(store).await,
        Verb::Break(order) => order.run(store).await,
        Verb::Doctor(doctor) => doctor.run(store).await,
        #[cfg(feature = "serve")]
        Verb::Serve(serve) => serve.run(store).await,
        #[cfg(feature = "top")]
        Verb::Top(top) => top.run(store).await,
        Verb::Stores(stores) => stores.run(),
        #[cfg(feature = "servers")]
        Verb::Migrate(migrate) => migrate.run(store).await,
        Verb::Bench(bench) => bench.run(store).await,
        Verb::Verify(verify) => verify.run(store).await,
        Verb::Completions(completions) => completions.run(),
        Verb::Man(man) => man.run(),
        Verb::BenchWorkers(workers) => workers.run(store).await,
        Verb::VerifyWorker(worker) => worker.run(),
        Verb::Bound(bound) => bound.run(),
        Verb::Guard(guard) => guard.run(),
        Verb::Keep(keep) => keep.run(store).await,
    }
}

impl StoreArguments {
    /// These arguments, with the store that a verb was given as an argument of its own.
    fn or_named(&self, url: Option<&String>) -> Self {
        Self { store: url.or(self.store.as_ref()).cloned(), ..self.clone() }
    }

    /// These arguments without the default store, which each host has for itself.
    fn named(&self) -> Self {
        Self { require_store: true, ..self.clone() }
    }

    /// The arguments with which another fencelock in the same environment uses the same store.
    fn again(&self) -> Vec<OsString> {
        let store = self.store.as_ref().map(|url| format!("--store={url}").into());
        let config = self.config.as_ref().map(|file| {
            let mut argument = OsString::from("--config=");
            argument.push(file);
            argument
        });
        store.into_iter().chain(config).chain(self.require_store.then(|| "--require-store".into())).collect()
    }

    /// How much of the library's log is printed.
    fn effective_level(&self, quiet: bool) -> Outcome<LevelFilter> {
        let otherwise = if quiet { LevelFilter::ERROR } else { LevelFilter::WARN };
        match (self.log_level, std::env::var(LOG_VARIABLE)) {
            (Some(level), _) => Ok(level),
            (None, Ok(level)) => {
                arguments::level(&level).map_err(|fault| Failure::new(code::CONFIG, format!("{LOG_VARIABLE}: {fault}")))
            }
            (None, Err(_)) => Ok(otherwise),
        }
    }

    /// The store for `names`. Unless `quiet`, warns of facts that its user may not expect.
    fn choose(&self, quiet: bool, names: &[Name]) -> Outcome<Chosen> {
        let chosen = self.choose_all(quiet, names)?;
        let [old, new] = &chosen[..] else { return Ok(chosen[0].clone()) };
        let message = format!(
            "{} moves {} from {} to {}: `run` and `elect` hold it in both, and the other verbs need --store for one of them",
            old.origin,
            several::locks(names),
            old.name(),
            new.name()
        );
        Err(Failure::new(code::USAGE, message))
    }

    /// The store that is meant for `names`, as [`StoreArguments::choose`] has it; while they move, the old and the new one.
    fn choose_all(&self, quiet: bool, names: &[Name]) -> Outcome<Vec<Chosen>> {
        let mut chosen = settings::choose(self.options(), &Surroundings::of_this_process(), names)?;
        let new = chosen.new_store();
        chosen.new_url = None;
        self.complete(std::iter::once(chosen).chain(new).collect(), quiet)
    }

    /// All stores of a command without a name: the stores of all routes, or one. None of them is the memory of a process.
    fn choose_every(&self) -> Outcome<Vec<Chosen>> {
        let every = settings::choose_every(self.options(), &Surroundings::of_this_process())?;
        every.iter().try_for_each(Chosen::refuse_memory)?;
        self.complete(every, true)
    }

    fn options(&self) -> Options<'_> {
        Options { store: self.store.as_deref(), config: self.config.as_deref() }
    }

    fn complete(&self, mut all: Vec<Chosen>, quiet: bool) -> Outcome<Vec<Chosen>> {
        let chosen = &all[0];
        if chosen.origin == Origin::Default {
            if self.require_store {
                return Err(settings::none_is_named());
            }
            if !quiet {
                let directory = chosen.name();
                say(format_args!(
                    "no store is named: locking on this host only, in {directory}; --store, {STORE_VARIABLE} or {SYSTEM_FILE} choose another"
                ));
            }
        }
        if chosen.origin == Origin::Option && chosen.has_password() {
            say(format_args!(
                "the password in --store can be read in the list of processes: use {STORE_VARIABLE} or a file"
            ));
        }
        for chosen in &mut all {
            chosen.url = libpq::complete(&chosen.url)?;
        }
        Ok(all)
    }

    /// The store that is meant for `names`, and a client of it, to look only; no client of a default directory that was never used.
    async fn connect_to_look(&self, quiet: bool, names: &[Name]) -> Outcome<(Chosen, Option<Client>)> {
        let chosen = self.choose(quiet, names)?;
        chosen.refuse_memory()?;
        let client = look_at(&chosen).await?;
        Ok((chosen, client))
    }
}

/// A client of `chosen`, to look only; no client of a default directory that was never used.
async fn look_at(chosen: &Chosen) -> Outcome<Option<Client>> {
    if !chosen.is_missing() {
        return connect(Client::builder().session_when_needed(true), chosen, false).await.map(Some);
    }
    // A typing mistake would look like a store in which nothing is locked.
    if chosen.origin != Origin::Default {
        let message = format!("{} is not there (named by {}); `fencelock run` makes it", chosen.name(), chosen.origin);
        return Err(Failure::new(code::UNAVAILABLE, message));
    }
    Ok(None)
}

/// As [`look_at`], where a directory that is not there is a failure.
async fn watch_at(chosen: &Chosen) -> Outcome<Client> {
    let missing = || format!("{} is not there yet: `fencelock run` makes it", chosen.name());
    look_at(chosen).await?.ok_or_else(|| Failure::new(code::UNAVAILABLE, missing()))
}

/// The first failure of several stores, reported after all of them were asked.
#[derive(Default)]
struct Failures(Option<Failure>);

impl Failures {
    /// Keeps a success. Prints each failure after the first at once.
    fn note<T>(&mut self, ended: Outcome<T>) -> Option<T> {
        match ended {
            Ok(done) => return Some(done),
            Err(failure) if self.0.is_none() => self.0 = Some(failure),
            Err(failure) => failure.message.into_iter().for_each(say),
        }
        None
    }
}

/// Connects to `chosen`; with `inherit`, commands started later keep a `file:` store's session alive.
async fn connect(builder: ClientBuilder, chosen: &Chosen, inherit: bool) -> Outcome<Client> {
    if chosen.origin == Origin::Default {
        settings::make_parents(&chosen.url)?;
    }
    let connected = builder.connect(&chosen.inherited(inherit)).await;
    connected.map_err(|error| match chosen.origin {
        Origin::Default => settings::default_failed(error),
        _ => error.with("store from", &chosen.origin).into(),
    })
}

/// How long the end of a session may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long the end of a session may take after a failure, or where a renewal is overdue: the store may be out of
/// reach.
const BRIEF_FAREWELL: Duration = Duration::from_millis(500);

/// Ends the client's session. Its remains go by themselves when the store does not answer.
async fn farewell(client: &Client, has_failed: bool) {
    let is_well = !has_failed && matches!(client.health(), Health::Confirmed(_));
    let limit = if is_well { FAREWELL } else { BRIEF_FAREWELL };
    let _ = tokio::time::timeout(limit, client.close()).await;
}

/// Prints the failure of a verb at once: no user should wait for the end of a session to read it.
fn said_already<T>(ended: Outcome<T>) -> Outcome<T> {
    ended.map_err(|failure| {
        failure.message.into_iter().for_each(say);
        Failure::silent(failure.code)
    })
}
