//! The state of a session's process by `/proc`. The kernel's lock does not show it: a child may keep the lock, and so does a stopped process.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::LazyLock;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::sessions::session_name;
use crate::store::{Owner, ProcessState};

/// Whether `/proc` has this process's numbers: another container's may be mounted there.
static HAS_OUR_NUMBERS: LazyLock<bool> =
    LazyLock::new(|| fs::read_link("/proc/self").is_ok_and(|own| own == Path::new(&std::process::id().to_string())));

/// The fault of a living session's process. `None` without a known fault: for processes of other hosts, or of containers with names of their own.
pub(super) fn state_of(session: u64, owner: &Owner) -> Option<ProcessState> {
    let is_here = || owner.host == rustix::system::uname().nodename().to_string_lossy();
    if owner.pid == 0 || owner.pid == std::process::id() || !is_here() || !*HAS_OUR_NUMBERS {
        return None;
    }
    let process = owner.pid.to_string();
    let is_gone = match fs::read_to_string(format!("/proc/{process}/stat")) {
        // The second field is the program's name in parentheses, which may hold anything.
        Ok(stat) => match stat.rsplit_once(')')?.1.trim_start().chars().next()? {
            'T' | 't' if has_open(&process, session) != Some(false) => return Some(ProcessState::Stopped),
            // A process whose first thread has ended may have others.
            'X' => true,
            'Z' => fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count) <= 1,
            _ => false,
        },
        // Where `/proc` hides the processes of other users (`hidepid`), signal 0 shows whether one exists.
        Err(error) => error.kind() == ErrorKind::NotFound && is_no_process(owner.pid),
    };
    is_gone.then(|| ProcessState::Gone { kept_by: processes_with(session) })
}

fn is_no_process(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// The processes that hold a session file open.
fn processes_with(session: u64) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<u32> =
        names.filter(|name| has_open(name, session) == Some(true)).filter_map(|name| name.parse().ok()).collect();
    found.sort_unstable();
    found
}

/// Whether a process has a session's file open for writing, as its owner has: other processes only test the file. `None` where that is hidden.
fn has_open(process: &str, session: u64) -> Option<bool> {
    let name = session_name(session);
    let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    Some(files.flatten().any(|file| {
        let is_it = fs::read_link(file.path()).is_ok_and(|path| path.file_name().is_some_and(|found| *found == *name));
        is_it && is_written(process, &file.file_name().to_string_lossy())
    }))
}

fn is_written(process: &str, file: &str) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/fdinfo/{file}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 3 == 2)
}
