//! The users who may write in a lock directory, and the permissions of everything inside.
//!
//! A user who may remove a ticket may end a lock, so these are the people who are trusted with every lock in it: the owner, who is root or
//! this user, and the group if it may write. A directory that all users may write is refused.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Mode, Stat};

use crate::error::{Error, ErrorKind, Result};

/// Refuses a directory in which untrusted users could end our locks.
pub(super) fn check(path: &str, root: &Stat) -> Result<()> {
    let (me, owner) = (rustix::process::geteuid().as_raw(), root.st_uid);
    let refused = |message| Error::new(ErrorKind::Denied, "open", message).with("path", path);
    if owner != 0 && owner != me {
        let message = "the directory belongs to another user, who can end every lock in it; use one of root's or of this user's, which a group may write";
        return Err(refused(message).with("owner", owner).with("this user", me));
    }
    let mode = Mode::from_raw_mode(root.st_mode);
    if mode.contains(Mode::WOTH) {
        return Err(refused(
            "every user may write in the directory, and so end every lock in it; take that away (chmod o-w), or name a new directory inside it",
        ));
    }
    if mode.contains(Mode::SVTX | Mode::WGRP) {
        return Err(refused(
            "in a sticky directory the members of the group cannot replace each other's files; take the bit away (chmod -t)",
        ));
    }
    Ok(())
}

/// The permission bits of everything inside, taken from the directory itself.
///
/// Only users who may write get permissions: every user who can open a file can lock it with `flock`. So a mere reader could keep a dead
/// holder's locks, and delay living clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modes {
    pub(super) file: Mode,
    pub(super) directory: Mode,
    /// The group that everything inside belongs to, when it is more than a name.
    group: Option<Gid>,
}

impl Modes {
    pub(super) fn of(root: &Stat) -> Self {
        let bits = Mode::from_raw_mode(root.st_mode);
        let mut file = Mode::RUSR | Mode::WUSR;
        let mut directory = Mode::RWXU | (bits & Mode::SGID);
        let group = bits.contains(Mode::WGRP | Mode::XGRP);
        if group {
            file |= Mode::RGRP | Mode::WGRP;
            directory |= Mode::RWXG;
        }
        Self { file, directory, group: group.then(|| Gid::from_raw(root.st_gid)) }
    }

    /// Gives an open file or directory the group and then the mode, since a change of the group takes bits away.
    pub(super) fn apply(&self, fd: impl AsFd, mode: Mode) -> rustix::io::Result<()> {
        if let Some(group) = self.group
            && rustix::fs::fstat(&fd)?.st_gid != group.as_raw()
        {
            // Refused to a user outside of the group; the permissions of other users hold then.
            let _ = rustix::fs::fchown(&fd, None, Some(group));
        }
        rustix::fs::fchmod(&fd, mode)
    }

    /// Removes the rights of a part beyond `mode`, as far as this user may: the directory granted more when the part was made. A user
    /// who could use that must still pass the directory itself.
    pub(super) fn tighten(&self, part: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
        let found = Mode::from_raw_mode(rustix::fs::fstat(part)?.st_mode);
        if !mode.contains(found & (Mode::RWXG | Mode::RWXO)) {
            let _ = self.apply(part, mode);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(owner: u32, mode: u32) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_uid, stat.st_mode) = (owner, mode);
        stat
    }

    #[test]
    fn only_users_that_may_write_get_any_right() {
        let table = [
            (0o700, [0o600, 0o700]),
            (0o755, [0o600, 0o700]),
            (0o770, [0o660, 0o770]),
            (0o2775, [0o660, 0o2770]),
            (0o1755, [0o600, 0o700]),
        ];
        for (root, expected) in table {
            let modes = Modes::of(&stat(0, root));
            assert_eq!([modes.file, modes.directory].map(|mode| mode.bits()), expected, "{root:o}");
        }
    }

    #[test]
    fn a_directory_of_another_user_or_open_to_all_is_refused() {
        let me = rustix::process::geteuid().as_raw();
        let table = [
            (me, 0o700, true),
            (me, 0o777, false),
            (me, 0o1777, false),
            (me, 0o1755, true),
            (0, 0o2770, true),
            (0, 0o3770, false),
            (me + 7, 0o700, false),
            (me + 7, 0o770, false),
        ];
        for (owner, mode, expected) in table {
            assert_eq!(check("/locks", &stat(owner, mode)).is_ok(), expected, "{owner} {mode:o}");
        }
    }
}
