//! `fencelock-ledger --hours N`: plays every cell of the table in turn, and appends a row for each drill. `fencelock-ledger --sum FILES` adds
//! the rows up.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use fencelock::blocking::{Client, Guard};
use fencelock_lab::history::LogWriter;
use fencelock_lab::ledger::{Ledger, Row, read, sum, table};
use fencelock_torture::Bed;
use fencelock_torture::table::{FAULTS, Fault, Played, TOPOLOGIES, Topology};
use fencelock_torture::writers::on_threads;

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The page of the sums; its table is between these two lines.
const PAGE: &str = "docs/proof.md";
const BEGIN: &str = "<!-- cargo xtask ledger --sum … --write -->\n";
const END: &str = "<!-- end -->";

/// Breaks servers, networks and workers on every store in turn, and appends a row to a file for each drill: its cell, how many faults took
/// effect, and how often each promise was broken. A run that was stopped continues where it was.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask ledger")]
struct Args {
    /// No new drill starts after this number of hours.
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// These topologies alone, such as `redis` or `zookeeper-three`.
    #[arg(long, num_args = 1..)]
    store: Vec<String>,
    /// These faults alone, such as `Calm` or `Brief(WorkerCut)`.
    #[arg(long, num_args = 1..)]
    fault: Vec<String>,
    /// The seed of the first drill; each further drill has the next number. By default the time decides.
    #[arg(long)]
    seed: Option<u64>,
    /// How many drills are played at once, each with servers of its own. A busy machine is too slow for several.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// The file of the rows. Logs of drills that are not clean are kept next to it.
    #[arg(long, default_value = "target/ledger/ledger.jsonl")]
    out: PathBuf,
    /// Plays nothing, and prints the sum of these files.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    sum: Vec<PathBuf>,
    /// Writes the sum into docs/proof.md, too.
    #[arg(long, requires = "sum")]
    write: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = if args.sum.is_empty() { Run::new(&args).and_then(|run| run.play()) } else { add_up(&args) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ledger: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the files have no broken promise.
fn add_up(args: &Args) -> io::Result<bool> {
    let rows: Vec<Row> = args.sum.iter().map(|path| read(path)).collect::<io::Result<Vec<_>>>()?.concat();
    let sums = sum(&rows);
    let text = format!("{}\n{}\n", summary(&rows), table(&sums));
    print!("{text}");
    if args.write {
        let path = Path::new(ROOT).join(PAGE);
        let page = fs::read_to_string(&path)?;
        let (head, rest) = page.split_once(BEGIN).ok_or_else(|| io::Error::other(format!("{PAGE}: no {BEGIN}")))?;
        let (_, tail) = rest.split_once(END).ok_or_else(|| io::Error::other(format!("{PAGE}: no {END}")))?;
        fs::write(&path, format!("{head}{BEGIN}\n{text}\n{END}{tail}"))?;
    }
    Ok(sums.iter().all(Row::is_clean))
}

/// The drills, the versions, and the reasons for drills that were not run.
fn summary(rows: &[Row]) -> String {
    let (played, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.not_run.is_none());
    let cells: HashSet<_> = played.iter().map(|row| (&row.store, &row.fault)).collect();
    let unique = |of: fn(&Row) -> &str, rows: &[&Row]| {
        let mut all: Vec<_> = rows.iter().map(|row| of(row).to_owned()).filter(|text| !text.is_empty()).collect();
        all.sort();
        all.dedup();
        all.join("; ")
    };
    let hours = played.iter().map(|row| row.seconds).sum::<f64>() / 3600.0;
    let (commits, versions) = (unique(|row| &row.commit, &played), unique(|row| &row.versions, &played));
    let mut text = format!(
        "{} drills of {} cells in {hours:.1} hours; commit {commits}; {versions}.\n",
        played.len(),
        cells.len()
    );
    let why = |row: &&Row| format!("{}: {}", row.store, row.not_run.as_deref().unwrap_or_default());
    let not_run: BTreeSet<_> = others.iter().map(why).collect();
    not_run.iter().for_each(|why| text.push_str(&format!("Not run: {why}.\n")));
    text
}

/// A run of the table.
struct Run {
    topologies: Vec<&'static Topology>,
    faults: Vec<&'static Fault>,
    until: Instant,
    seed: AtomicU64,
    at_once: usize,
    ledger: Mutex<Ledger>,
    /// How many rows earlier runs wrote.
    earlier: usize,
    /// Where logs and the second judge are.
    directory: PathBuf,
    commit: String,
    judge: Option<PathBuf>,
    /// Cells whose servers cannot have the fault.
    impossible: Mutex<HashSet<(&'static str, String)>>,
    /// This machine's only run: a second one would make both slower, and their takeovers longer.
    _alone: (Guard, Client),
}

impl Run {
    fn new(args: &Args) -> io::Result<Self> {
        let chosen = |name: &str, names: &[String]| names.is_empty() || names.iter().any(|chosen| chosen == name);
        let topologies: Vec<_> = TOPOLOGIES.iter().filter(|topology| chosen(topology.name, &args.store)).collect();
        let faults: Vec<_> = FAULTS.iter().filter(|fault| chosen(&fault.name(), &args.fault)).collect();
        if topologies.len() < args.store.len() || faults.len() < args.fault.len() {
            let known: Vec<_> = TOPOLOGIES.iter().map(|topology| topology.name).collect();
            let faults: Vec<_> = FAULTS.iter().map(Fault::name).collect();
            return Err(io::Error::other(format!("stores are {}; faults are {}", known.join(", "), faults.join(", "))));
        }
        let directory = Path::new(".").join(args.out.parent().unwrap_or(Path::new("")));
        fs::create_dir_all(&directory)?;
        let directory = directory.canonicalize()?;
        let ledger = Ledger::open(&args.out)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", args.out.display())))?;
        let is_changed = !output(Command::new("git").args(["status", "--porcelain"])).is_empty();
        let commit = output(Command::new("git").args(["rev-parse", "--short=10", "HEAD"]));
        Ok(Self {
            topologies,
            faults,
            until: Instant::now() + Duration::from_secs_f64(args.hours * 3600.0),
            seed: args.seed.unwrap_or_else(now).into(),
            at_once: args.at_once,
            earlier: ledger.rows().len(),
            ledger: ledger.into(),
            judge: second_judge(&directory),
            directory,
            commit: commit + if is_changed { "+" } else { "" },
            impossible: Mutex::default(),
            _alone: alone()?,
        })
    }

    /// Plays round after round. A cell that earlier runs played more often waits until the other cells have caught up.
    fn play(&self) -> io::Result<bool> {
        // Every topology gets these four faults before the next four: a short run plays all topologies.
        let of_round = |round| {
            let chunks = self.faults.chunks(4);
            chunks.flat_map(move |faults| self.topologies.iter().map(move |topology| (*topology, faults, round)))
        };
        let next = Mutex::new((0..).flat_map(of_round).take_while(|_| Instant::now() < self.until));
        on_threads(self.at_once, |_| {
            loop {
                let Some((topology, faults, round)) = locked(&next).next() else { return Ok(()) };
                self.round_of(topology, faults, round)?;
            }
        })?;
        let ledger = locked(&self.ledger);
        println!("\n{}\n{}", summary(ledger.rows()), table(&sum(ledger.rows())));
        Ok(ledger.rows()[self.earlier..].iter().all(Row::is_clean))
    }

    fn round_of(&self, topology: &'static Topology, faults: &[&Fault], round: usize) -> io::Result<()> {
        let mut bed: Option<Arc<dyn Bed>> = None;
        for fault in faults {
            let cell = (topology.name, fault.name());
            let is_played = |row: &&Row| row.not_run.is_none() && row.store == cell.0 && row.fault == cell.1;
            let played = locked(&self.ledger).rows().iter().filter(is_played).count();
            if Instant::now() >= self.until || played > round || locked(&self.impossible).contains(&cell) {
                continue;
            }
            let started = match (topology.obstacle(), bed.take()) {
                (Some(obstacle), _) => Err(io::Error::other(obstacle)),
                (None, Some(bed)) => Ok(bed),
                (None, None) => (topology.start)(),
            };
            let played = started.and_then(|started| {
                let drill = self.drill(topology, fault, &started);
                bed = Some(started);
                drill
            });
            match played {
                Ok(Some(row)) => locked(&self.ledger).add(row)?,
                Ok(None) => drop(locked(&self.impossible).insert(cell)),
                // The servers of other topologies may start, and these servers in a later round.
                Err(error) => {
                    println!("{}: not run: {error}", topology.name);
                    let row = Row { not_run: Some(error.to_string()), started: now(), ..Row::new(cell.0, &cell.1) };
                    return locked(&self.ledger).add(row);
                }
            }
        }
        Ok(())
    }

    fn drill(&self, topology: &Topology, fault: &Fault, bed: &Arc<dyn Bed>) -> io::Result<Option<Row>> {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{}-{}-{seed}-", topology.name, fault.name());
        let logs = tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.directory)?;
        let worker = std::env::current_exe()?.with_file_name("fencelock-torture-worker");
        let (began, awake, of_boot) = (now(), Instant::now(), LogWriter::now());
        let Some(played) = fault.play(bed, &worker, logs.path(), seed)? else { return Ok(None) };
        let took = awake.elapsed();
        // The boot clock counts the sleep of the machine.
        let slept = Duration::from_nanos(LogWriter::now().saturating_sub(of_boot)).saturating_sub(took);
        let mut row = Row {
            commit: self.commit.clone(),
            versions: versions(topology),
            seed,
            started: began,
            seconds: took.as_secs_f64(),
            slept_seconds: Some(slept.as_secs_f64()).filter(|slept| *slept > 1.0),
            ..Row::new(topology.name, &fault.name()).with(&played.verdict, played.faults)
        };
        self.judge_again(&played, logs.path(), &mut row)?;
        println!("{}: {}", topology.name, played.verdict);
        if !row.is_clean() {
            row.logs = Some(logs.keep().display().to_string());
            println!("logs: {}", row.logs.as_deref().unwrap_or_default());
        }
        Ok(Some(row))
    }

    fn judge_again(&self, played: &Played, logs: &Path, row: &mut Row) -> io::Result<()> {
        let Some(judge) = &self.judge else { return Ok(()) };
        let order = if played.verdict.laws.order { "ordered" } else { "unordered" };
        let verdict = Command::new(judge).arg(logs).args(["10s", order]).stdout(Stdio::null()).status()?.code();
        match verdict {
            Some(0 | 1) => {
                row.count("judged_twice", 1);
                row.count("disputed", u64::from((verdict == Some(0)) != played.verdict.report.is_clean()));
            }
            _ => row.count("undecided", 1),
        }
        Ok(())
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock of our own, for as long as the guard lives.
fn alone() -> io::Result<(Guard, Client)> {
    let store = std::env::temp_dir().join("fencelock-ledger");
    let client = Client::connect(format!("file://{}", store.display())).map_err(io::Error::other)?;
    let lock = client.mutex("ledger").map_err(io::Error::other)?.purpose("cargo xtask ledger");
    let refused = |error| io::Error::other(format!("another ledger runs on this machine: {error}"));
    Ok((lock.try_acquire().map_err(refused)?, client))
}

/// Builds the second judge, where there is a Go.
fn second_judge(directory: &Path) -> Option<PathBuf> {
    let program = directory.join("judge");
    let mut go = Command::new("go");
    go.args(["build", "-buildvcs=false", "-o"]).arg(&program).current_dir(Path::new(ROOT).join("interop/judge"));
    go.status().is_ok_and(|status| status.success()).then_some(program)
}

/// The packages of the servers, as Debian's list of packages has them.
fn versions(topology: &Topology) -> String {
    let package = topology.needs.first().and_then(|package| package.files.first());
    let version = |(_, package): &(_, &str)| {
        output(Command::new("dpkg-query").args(["-W", "-f", "${Package} ${Version}", package]))
    };
    package.map(version).unwrap_or_default()
}

/// The output of a command, or nothing where it fails.
fn output(command: &mut Command) -> String {
    let output = command.current_dir(ROOT).stderr(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    String::from_utf8_lossy(&output.unwrap_or_default()).trim().to_owned()
}

/// Seconds of Unix time.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
