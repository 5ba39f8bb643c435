//! Who may write in a lock directory, and what that gives to everything inside.
//!
//! A user who may remove a ticket may end a lock, so these are the people who are trusted with every lock in it: the owner,
//! the group if it may write, and in a directory that everybody may write, everybody. The last is refused unless the
//! sticky bit keeps each from removing what belongs to others.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Mode, Stat};

use crate::error::{Error, ErrorKind, Result};

/// Whose directories are used, besides root's and our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Trust {
    /// Nobody else's.
    #[default]
    Ourselves,
    /// Those of this user.
    Owner(u32),
    /// Anybody's, and those that everybody may write.
    Anyone,
}

impl Trust {
    /// Refuses a directory in which people could end our locks whom nobody trusted with that.
    pub(super) fn check(self, path: &str, root: &Stat) -> Result<()> {
        let me = rustix::process::geteuid().as_raw();
        let owner = root.st_uid;
        let trusted = owner == 0 || owner == me || self == Self::Owner(owner) || self == Self::Anyone;
        let refused = |message| Err(Error::new(ErrorKind::Denied, "open", message).with("path", path));
        if !trusted {
            let error = refused(
                "the directory belongs to another user, who can end every lock in it; use one of root's or of this user's, or say `trust=` and the owner's user id in the URL",
            );
            return error.map_err(|error: Error| error.with("owner", owner).with("this user", me));
        }
        let mode = Mode::from_raw_mode(root.st_mode);
        if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) && self != Self::Anyone {
            return refused(
                "every user may write in the directory, and so end every lock in it; take that away (chmod o-w), set the sticky bit (chmod +t), name a new directory inside it, or say `trust=anyone` in the URL",
            );
        }
        Ok(())
    }
}

/// The permission bits of everything inside, taken from the directory itself.
///
/// Only those who may write get any: a short lock, and the lock on a session file, can be taken by everybody who can
/// open the file, so who may only read could keep a dead holder's locks, and hold up the living.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modes {
    pub(super) file: Mode,
    pub(super) directory: Mode,
    /// The directory of the buckets. In a sticky directory only the owner makes buckets: who owns one may remove what
    /// others put in it, sticky or not.
    pub(super) buckets: Mode,
    /// Whether nobody may remove what others made.
    pub(super) sticky: bool,
    /// Who owns the whole directory.
    owner: u32,
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
        let others = bits.contains(Mode::WOTH | Mode::XOTH);
        if others {
            file |= Mode::ROTH | Mode::WOTH;
            directory |= Mode::RWXO;
        }
        let sticky = bits.contains(Mode::SVTX) && (group || others);
        let buckets = if sticky { directory & !(Mode::WGRP | Mode::WOTH) } else { directory };
        if sticky {
            directory |= Mode::SVTX;
        }
        Self { file, directory, buckets, sticky, owner: root.st_uid, group: group.then(|| Gid::from_raw(root.st_gid)) }
    }

    /// Gives an open file or directory the group and then the mode, since a change of the group takes bits away.
    pub(super) fn apply(&self, fd: impl AsFd, mode: Mode) -> rustix::io::Result<()> {
        if let Some(group) = self.group
            && rustix::fs::fstat(&fd)?.st_gid != group.as_raw()
        {
            // Refused to who is not in the group; the permissions of everybody else hold then.
            let _ = rustix::fs::fchown(&fd, None, Some(group));
        }
        rustix::fs::fchmod(&fd, mode)
    }

    /// Whether this user may set up the directory. In a sticky one, what it is made of must belong to its owner.
    pub(super) fn may_set_up(&self) -> bool {
        let me = rustix::process::geteuid().as_raw();
        !self.sticky || me == self.owner || me == 0
    }

    /// Whether a part of a sticky directory belongs to a stranger, who could remove what others put there.
    pub(super) fn is_strange(&self, part: &OwnedFd) -> rustix::io::Result<bool> {
        let owner = rustix::fs::fstat(part)?.st_uid;
        Ok(self.sticky && owner != self.owner && owner != 0)
    }

    /// Whether a part gives more to people than `mode` does: the directory gave more when it was made.
    pub(super) fn is_wider(&self, part: &OwnedFd, mode: Mode) -> rustix::io::Result<bool> {
        let found = Mode::from_raw_mode(rustix::fs::fstat(part)?.st_mode);
        let people = Mode::RWXG | Mode::RWXO;
        Ok(!mode.contains(found & people) || (mode.contains(Mode::SVTX) && !found.contains(Mode::SVTX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory with this mode, and what is in it: files, directories, and the one of the buckets.
    fn inside(mode: u32) -> [u32; 3] {
        let mut stat = rustix::fs::stat("/").unwrap();
        stat.st_mode = mode;
        let modes = Modes::of(&stat);
        [modes.file, modes.directory, modes.buckets].map(|mode| mode.bits())
    }

    #[test]
    fn only_those_who_may_write_get_anything() {
        let table = [
            (0o700, [0o600, 0o700, 0o700]),
            (0o755, [0o600, 0o700, 0o700]),
            (0o770, [0o660, 0o770, 0o770]),
            (0o2775, [0o660, 0o2770, 0o2770]),
            (0o777, [0o666, 0o777, 0o777]),
            (0o1777, [0o666, 0o1777, 0o755]),
            (0o3770, [0o660, 0o3770, 0o2750]),
            (0o1755, [0o600, 0o700, 0o700]),
        ];
        for (root, expected) in table {
            assert_eq!(inside(root), expected, "{root:o}");
        }
    }

    #[test]
    fn a_directory_of_another_user_or_of_everybody_is_refused_unless_it_is_named() {
        let me = rustix::process::geteuid().as_raw();
        let table = [
            (me, 0o700, Trust::Ourselves, true),
            (me, 0o777, Trust::Ourselves, false),
            (me, 0o777, Trust::Anyone, true),
            (me, 0o1777, Trust::Ourselves, true),
            (0, 0o2770, Trust::Ourselves, true),
            (me + 7, 0o700, Trust::Ourselves, false),
            (me + 7, 0o770, Trust::Owner(me + 7), true),
            (me + 7, 0o777, Trust::Owner(me + 7), false),
            (me + 7, 0o770, Trust::Owner(me + 8), false),
            (me + 7, 0o777, Trust::Anyone, true),
        ];
        for (owner, mode, trust, expected) in table {
            let mut stat = rustix::fs::stat("/").unwrap();
            (stat.st_uid, stat.st_mode) = (owner, mode);
            assert_eq!(trust.check("/locks", &stat).is_ok(), expected, "{owner} {mode:o} {trust:?}");
        }
    }
}
