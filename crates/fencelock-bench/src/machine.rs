//! The machine of the figures, and the cores of processes.

use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two of the cores that we may use; the same one twice where there is only one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cores {
    pub(crate) first: usize,
    pub(crate) second: usize,
    pub(crate) count: usize,
}

impl Cores {
    /// The first two cores that this process may run on.
    pub(crate) fn available() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("cannot ask for the cores we may use")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let first = cores.next().unwrap_or(0);
        let second = cores.next().unwrap_or(first);
        Ok(Self { first, second, count: usize::try_from(allowed.count()).unwrap_or(1) })
    }
}

/// Keeps this thread, and all that it starts from now on, to `cores`.
pub(crate) fn pin(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).context("cannot keep to one core")
}

/// Calls `work` while this thread keeps to `cores`: the children that it starts keep to them for ever.
pub(crate) fn pinned<T>(cores: &[usize], work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None).context("cannot ask for the cores we may use")?;
    pin(cores)?;
    let result = work();
    sched_setaffinity(None, &before).context("cannot use all cores again")?;
    result
}

/// Keeps all threads of another process, and all that they start from now on, to `cores`.
pub(crate) fn pin_process(id: u32, cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    let threads = format!("/proc/{id}/task");
    for thread in Path::new(&threads).read_dir().context(threads.clone())? {
        let Some(thread) = thread?.file_name().to_str().and_then(|id| Pid::from_raw(id.parse().ok()?)) else {
            continue;
        };
        match sched_setaffinity(Some(thread), &set) {
            // The thread ended meanwhile.
            Err(Errno::SRCH) => {}
            pinned => pinned.context("cannot keep a server to its cores")?,
        }
    }
    Ok(())
}

/// The kind of machine in one line, without a name of the host.
pub(crate) fn describe(directory: Option<&Path>) -> Result<String> {
    let cores = Cores::available()?.count;
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy();
    let kernel = kernel.split('-').next().unwrap_or_default();
    let mut line = format!("{}, {cores} cores, Linux {kernel}", processor());
    if let Some(day) = today() {
        line = format!("{day} on {line}");
    }
    if let Some(directory) = directory {
        line.push_str(&format!(", {}", file_system(directory)?));
    }
    Ok(line)
}

/// The day in UTC, in the form of `date`: a table in the documents must show its age.
fn today() -> Option<String> {
    let output = Command::new("date").args(["--utc", "+%Y-%m-%d"]).output().ok()?;
    String::from_utf8(output.stdout).ok().map(|day| day.trim().to_owned()).filter(|day| !day.is_empty())
}

/// A warning when other processes load the machine.
pub(crate) fn is_busy() -> Option<String> {
    let load: f64 = read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()?;
    (load > 0.5).then(|| format!("busy: a load of {load} when it began"))
}

fn processor() -> String {
    let text = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned())
}

fn file_system(directory: &Path) -> Result<String> {
    let stat = rustix::fs::statfs(directory).with_context(|| directory.display().to_string())?;
    let name = match stat.f_type {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794C_7630 => "overlay",
        0x2FC1_2FC1 => "zfs",
        0xF2F5_2010 => "f2fs",
        other => return Ok(format!("a file system of type {other:#x}")),
    };
    Ok(name.to_owned())
}

/// Processor time of the threads of another process so far, to the nanosecond, without threads that have ended.
pub(crate) fn threads_time(id: u32) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{id}/task")).context("a process is gone")? {
        // A thread may end meanwhile.
        let Ok(times) = read_to_string(thread?.path().join("schedstat")) else { continue };
        let running = times.split(' ').next().unwrap_or_default();
        total += Duration::from_nanos(running.parse().with_context(|| times.clone())?);
    }
    Ok(total)
}

/// The private memory of this process, in bytes.
pub(crate) fn memory() -> Result<u64> {
    let text = read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [_, resident, shared, ..] = pages[..] else { anyhow::bail!("/proc/self/statm says {text:?}") };
    Ok((resident - shared) * rustix::param::page_size() as u64)
}
