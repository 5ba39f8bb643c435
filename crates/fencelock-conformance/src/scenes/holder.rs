//! A process that holds one lock, to be killed and stopped.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};

use fencelock::{Client, FencingToken, Guard};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::{LOCK, PATIENCE, Stage};
use fencelock_lab::Resource;

/// The process as a scene has it in hand; killed when it is dropped.
pub(super) struct Holder {
    child: Child,
    said: Receiver<String>,
}

impl Holder {
    /// Starts the process, which comes by the way of `client`, and waits until it holds the lock.
    pub(super) fn start(stage: &Stage, client: usize) -> Self {
        let mut command = Command::new(&stage.holder);
        command.arg(stage.site.url(client)).arg(&stage.directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the holder's process");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (say, said) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        let holder = Self { child, said };
        assert_eq!(holder.says(), "granted");
        holder
    }

    /// The next line that it says.
    pub(super) fn says(&self) -> String {
        self.said.recv_timeout(PATIENCE).expect("a word from the holder")
    }

    /// Bids it look at its guard, at once or as soon as it goes on.
    pub(super) fn look(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"look\n").expect("a holder that reads");
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("killing the holder");
    }

    pub(super) fn stop(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).expect("stopping the holder");
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).expect("a stopped holder");
    }

    pub(super) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("continuing the holder");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // A holder that ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many late writes it tries.
const WRITES: usize = 10;

/// The whole of the holder's binary: `URL DIRECTORY`. It takes the lock and says `granted`. For each line of its
/// standard input it asks its guard once, writes to the resource all the same, and says what came of both. It ends with
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
    // Stopped, it cannot read that its parent is gone.
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

/// What the guard says first, and how many of the late writes were accepted.
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
