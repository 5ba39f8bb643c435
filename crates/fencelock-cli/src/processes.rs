//! The kernel's facts of processes in `/proc` (proc(5)). Without `/proc`, or with that of another namespace, there are none.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

pub(crate) fn ignored() -> SigSet {
    signals_in(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "SigIgn:")
}

/// Whether `process` is stopped now. `None` when the kernel does not show it.
pub(crate) fn is_stopped(process: Pid) -> Option<bool> {
    stat_of(process).map(|stat| stat.first().is_some_and(|state| state == "T"))
}

/// Whether a process in `group` other than the leader is stopped, while the leader is neither stopped nor about to be: a signal to
/// the whole group stops its processes one after another.
pub(crate) fn is_stopped_but_for_its_leader(group: Pid) -> bool {
    let mut others = processes_of(group).filter(|(process, _)| *process != group.as_raw());
    // Checks the leader last, so that a stop in between is seen.
    others.any(|(_, state)| state == "T") && runs_on(group) == Some(true)
}

/// Whether all processes of `group` are dead, and only not reaped yet. `false` when the kernel does not show it.
pub(crate) fn are_all_dead(group: Pid) -> bool {
    let mut processes = processes_of(group).peekable();
    processes.peek().is_some() && processes.all(|(process, state)| is_dead(process, &state))
}

/// The processes of `group` and their states, read one by one; none if the kernel does not show them.
fn processes_of(group: Pid) -> impl Iterator<Item = (i32, String)> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(move |process| {
        let mut stat = stat_of(Pid::from_raw(process))?;
        (stat.get(2)?.parse() == Ok(group.as_raw())).then(|| (process, stat.swap_remove(0)))
    })
}

/// A process may have live threads although its first thread is a zombie.
fn is_dead(process: i32, state: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    state == "X" || state == "Z" && threads <= 1
}

/// Whether `process` is not stopped, and has no pending signal that would stop it.
fn runs_on(process: Pid) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let stops = [Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
    let pending = signals_in(&status, "ShdPnd:");
    Some(!is_stopped(process)? && !stops.iter().any(|stop| pending.contains(*stop)))
}

/// The parent of `process`; `None` if the parent is outside of this container.
pub(crate) fn parent_of(process: Pid) -> Option<Pid> {
    let parent = stat_of(process)?.get(1)?.parse().ok()?;
    (parent > 0).then(|| Pid::from_raw(parent))
}

/// When `process` started, in the kernel's ticks since the machine did.
pub(crate) fn start_of(process: Pid) -> Option<u64> {
    stat_of(process)?.get(19)?.parse().ok()
}

/// The descriptors from 3 up that this process was started with. They belong to its caller and to the command.
pub(crate) static INHERITED: LazyLock<Vec<i32>> = LazyLock::new(|| {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The descriptor that read the list is closed by now.
    let is_open = |number: &i32| *number > 2 && fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    numbers.into_iter().filter(is_open).collect()
});

/// The arguments that order a keeper or a guardian to close [`INHERITED`]: a lock or a pipe of a script must not outlive the script.
pub(crate) fn to_close() -> impl Iterator<Item = String> {
    INHERITED.iter().map(|number| format!("--close={number}"))
}

/// Closes the descriptors that [`to_close`] names.
pub(crate) fn close(numbers: &[i32]) {
    numbers.iter().for_each(|number| {
        let _ = nix::unistd::close(*number);
    });
}

/// Whether `/proc` has our process numbers: after `unshare --pid` without `--mount-proc` it has other ones.
static HAS_OUR_NUMBERS: LazyLock<bool> =
    LazyLock::new(|| fs::read_link("/proc/self").is_ok_and(|own| own == Path::new(&Pid::this().to_string())));

/// The kernel's facts of a process after its name: state, parent, group, session, and so on until its start.
fn stat_of(process: Pid) -> Option<Vec<String>> {
    if !*HAS_OUR_NUMBERS {
        return None;
    }
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may hold anything.
    Some(stat.rsplit_once(')')?.1.split_whitespace().take(20).map(str::to_owned).collect())
}

/// The signals of the mask that `status` has under `field`.
fn signals_in(status: &str, field: &str) -> SigSet {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default();
    Signal::iterator().filter(|signal| mask >> (*signal as i32 - 1) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_masks_of_signals_are_understood() {
        let set = signals_in("Name:\tx\nSigIgn:\t0000000000001003\nSigCgt:\t0\n", "SigIgn:");
        let names: Vec<_> = set.iter().collect();
        assert_eq!(names, [Signal::SIGHUP, Signal::SIGINT, Signal::SIGPIPE]);
        assert_eq!(signals_in("nothing", "SigIgn:").iter().count(), 0);
    }
}
