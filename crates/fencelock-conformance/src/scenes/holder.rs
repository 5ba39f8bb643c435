//! A process that holds one lock, to be killed and stopped.

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use fencelock::{Client, FencingToken, Guard};
use rustix::process::Signal;

use super::{LOCK, PATIENCE, Stage};
use fencelock_lab::{Process, Resource};

/// The process of a scene; the drop kills it.
pub(super) struct Holder(Process);

impl Holder {
    /// Starts the process, which uses the route of `client`, and waits until it holds the lock.
    pub(super) fn start(stage: &Stage, client: usize) -> Self {
        let mut command = Command::new(&stage.holder);
        let process = Process::start(command.arg(stage.site.url(client)).arg(&stage.directory));
        let holder = Self(process.expect("the holder's process"));
        assert_eq!(holder.says(), "granted");
        holder
    }

    /// The next line of the process.
    pub(super) fn says(&self) -> String {
        self.0.says(PATIENCE).expect("a word from the holder")
    }

    /// Orders the holder to check its guard, at once or on its continuation.
    pub(super) fn look(&mut self) {
        self.0.order("look").expect("a holder that reads");
    }

    pub(super) fn kill(&mut self) {
        self.0.kill().expect("killing the holder");
    }

    pub(super) fn stop(&self) {
        self.0.stop().expect("stopping the holder");
    }

    pub(super) fn go_on(&self) {
        self.0.resume().expect("continuing the holder");
    }
}

/// How many late writes the holder tries.
const WRITES: usize = 10;

/// The whole of the holder's binary: `URL DIRECTORY`. The holder takes the lock and says `granted`. For each line of its
/// standard input, the holder asks its guard once, writes to the resource in any case, and says the results. The process ends with
/// its input.
#[must_use]
pub fn holder_main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, directory] = &args[..] else {
        eprintln!("holder: started by a scene only");
        return ExitCode::FAILURE;
    };
    match hold(url, Path::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("holder: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn hold(url: &str, directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    // A stopped process cannot read that its parent is gone.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (_client, guard) = runtime.block_on(async {
        // A busy machine may let a single attempt run out of time.
        let client = Client::builder().connect_timeout(PATIENCE).connect(url).await?;
        let guard = client.mutex(LOCK)?.acquire().await?;
        Ok::<_, fencelock::Error>((client, guard))
    })?;
    let resource = Resource::open(directory, LOCK)?;
    println!("granted");
    for line in io::stdin().lines() {
        line?;
        println!("{}", woken(&guard, &resource)?);
    }
    // The parent is gone, and the lock with it: nothing is released here.
    std::process::exit(0)
}

/// The guard's first answer, and how many of the late writes were accepted.
fn woken(guard: &Guard, resource: &Resource) -> io::Result<String> {
    let believes = guard.check().is_ok();
    let token = guard.token().map_or(0, FencingToken::to_i64);
    let mut accepted = 0;
    for _write in 0..WRITES {
        accepted += usize::from(resource.write(token)?);
    }
    let answer = if believes { "held" } else { "lost" };
    Ok(format!("{answer}, {accepted} late writes accepted"))
}
