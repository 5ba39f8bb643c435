//! A configuration file counts only if all its possible writers may control this process anyway.
//!
//! fencelock reads a file in the working directory. Without this check, a user who can write to a directory that root works in would decide
//! where root's locks are.

use std::fmt;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::{Uid, User};

use crate::output::{Failure, Outcome, code};

/// A longer file is no configuration.
const LONGEST: u64 = 64 * 1024;

/// The text of the file at `path`; `None` when there is none.
///
/// The file must be a regular file of `user` or of root that is not writable by all, and so must a link to it.
pub(crate) fn read(path: &Path, user: u32) -> Outcome<Option<String>> {
    let wrong = |what: &dyn fmt::Display| Failure::new(code::CONFIG, format!("{}: {what}", path.display()));
    // A blocking open of a pipe without a writer would hang.
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(&error)),
    };
    // Checks the open file, not the path, which may lead to another file by now.
    let metadata = file.metadata().map_err(|error| wrong(&error))?;
    if let Ok(link) = fs::symlink_metadata(path)
        && link.is_symlink()
    {
        not_a_strangers("the link", &link, user).map_err(|fault| wrong(&fault))?;
    }
    if !metadata.is_file() {
        return Err(wrong(&"not a regular file"));
    }
    not_a_strangers("the file", &metadata, user).map_err(|fault| wrong(&fault))?;
    if metadata.mode() & 0o002 != 0 {
        return Err(wrong(&"every user may write to it, so it is ignored: chmod o-w"));
    }
    let mut text = String::new();
    let read = file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    if u64::try_from(read).is_ok_and(|read| read > LONGEST) {
        return Err(wrong(&format_args!("it is longer than {LONGEST} bytes")));
    }
    Ok(Some(text))
}

/// Refuses the file at `path`, which holds a secret, where other users can read it.
pub(crate) fn refuse_shared(path: &Path) -> Outcome<()> {
    match fs::metadata(path) {
        Ok(about) if is_shared(&about) => {
            let shown = path.display();
            let message = format!("{shown}: other users can read the secret in this file: chmod 600 {shown}");
            Err(Failure::new(code::CONFIG, message))
        }
        _ => Ok(()),
    }
}

/// Whether unintended users can read a file: root may let a group of this process read a file of root's.
pub(crate) fn is_shared(about: &Metadata) -> bool {
    let is_lent = about.uid() == 0 && !Uid::effective().is_root();
    about.mode() & if is_lent { 0o007 } else { 0o077 } != 0
}

fn not_a_strangers(what: &str, metadata: &Metadata, user: u32) -> Result<(), String> {
    let owner = metadata.uid();
    if owner == user || owner == 0 {
        return Ok(());
    }
    let name = User::from_uid(Uid::from_raw(owner)).ok().flatten().map_or_else(String::new, |user| user.name + ", ");
    Err(format!(
        "{what} belongs to {name}user id {owner}, and is obeyed only if it is yours or root's: give --store URL, set FENCELOCK_STORE, or take the file over with chown"
    ))
}
