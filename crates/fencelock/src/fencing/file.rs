//! A file that late holders cannot replace.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::token::{required, stale};
use crate::error::{Error, ErrorKind, Result};
use crate::token::FencingToken;

/// How long to wait for another process's access, and the pause between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// A fenced file, which refuses writes with a token older than the newest one.
///
/// The holders of one lock replace the file. A former holder's late write fails, however late it comes.
///
/// A register in the same directory, `<file>.fence`, keeps the newest token. A `flock` on the register makes comparison and replacement one
/// step. A new holder [claims](FencedFile::claim) the file before it reads it: from then on no older holder writes, not even after a pause
/// in the middle of its work.
///
/// All writers must use it, with tokens of one lock: tokens of another lock, or of another store, cannot be compared. All writers must
/// share a host: network file systems do not share such a lock. The calls block; in asynchronous code use `spawn_blocking`.
///
/// # Examples
/// ```
/// use fencelock::{Client, fencing::FencedFile};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = Client::connect("memory:").await?;
/// # let directory = tempfile::tempdir()?;
/// let report = FencedFile::new(directory.path().join("report.txt"));
/// let guard = client.mutex("report")?.acquire().await?;
/// report.claim(guard.token())?; // from here on no earlier holder can write
/// report.write(guard.token(), "42 orders")?;
/// # let late = guard.token();
/// # guard.release().await?;
/// # report.claim(client.mutex("report")?.acquire().await?.token())?;
/// # assert_eq!(report.write(late, "late").unwrap_err().kind(), fencelock::ErrorKind::Lost);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct FencedFile {
    path: PathBuf,
}

impl FencedFile {
    /// The fenced file at `path`. The file need not exist; its directory must, with room for the register and for the next content.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Claims the file: every older token is refused from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] where a later holder claimed the file or wrote it; [`ErrorKind::Unsupported`] without a token;
    /// [`ErrorKind::Unreachable`], worth another try, where another process has kept the register for 10 s, such as a stopped one;
    /// [`ErrorKind::Layout`] for a damaged register; errors of the file system.
    pub fn claim(&self, token: impl Into<Option<FencingToken>>) -> Result<()> {
        self.accept(token.into()).map(drop)
    }

    /// Replaces the whole file, unless this token is older than one that was seen. Readers find the old content or the new one, never a
    /// part, and it is on the disk when this returns. The permissions of the file stay; a symbolic link is replaced itself.
    ///
    /// # Errors
    /// As [`FencedFile::claim`]; nothing was written then. After another error of the file system that says
    /// [unknown](Error::outcome), the file may be replaced.
    pub fn write(&self, token: impl Into<Option<FencingToken>>, content: impl AsRef<[u8]>) -> Result<()> {
        let _register = self.accept(token.into())?;
        let next = self.sibling(".fence.new");
        prepare(&next, &self.path, content.as_ref()).map_err(|error| failed(&next, error))?;
        fs::rename(&next, &self.path).map_err(|error| failed(&self.path, error))?;
        let directory = self.path.parent().filter(|at| !at.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|it| it.sync_all()).map_err(|error| failed(directory, error).outcome_unknown())
    }

    /// The newest token that was seen.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] for a damaged register; errors of the file system.
    pub fn newest(&self) -> Result<Option<FencingToken>> {
        let path = self.sibling(".fence");
        match open(&path, false) {
            Ok(register) => read(&register, &path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, error)),
        }
    }

    /// The register, locked until it is dropped, with this token in it.
    fn accept(&self, token: Option<FencingToken>) -> Result<File> {
        let token = required(token)?;
        let path = self.sibling(".fence");
        let register = open(&path, true).map_err(|error| failed(&path, error))?;
        lock(&register, &path)?;
        match read(&register, &path)? {
            Some(seen) if seen > token => return Err(stale(token, seen).with("file", self.path.display())),
            Some(seen) if seen == token => return Ok(register),
            _ => {}
        }
        // The register is written before the content: a crash in between refuses too much, and never too little.
        let text = format!("{token:020}\n");
        let kept = register.write_all_at(text.as_bytes(), 0).and_then(|()| register.sync_all());
        kept.map_err(|error| failed(&path, error))?;
        Ok(register)
    }

    fn sibling(&self, ending: &str) -> PathBuf {
        let mut path = OsString::from(&self.path);
        path.push(ending);
        path.into()
    }
}

/// Opens the register. Another user may have placed a link there, to redirect what is written, or a pipe, which would stop the reader.
fn open(path: &Path, writes: bool) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let register =
        OpenOptions::new().read(true).write(writes).create(writes).truncate(false).custom_flags(flags).open(path)?;
    if register.metadata()?.is_file() { Ok(register) } else { Err(io::Error::other("the register is no file")) }
}

fn lock(register: &File, path: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match flock(register, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if start.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let message =
                    "another process has been writing for 10 s; it may be stopped in the midst (`lslocks` shows it)";
                let error = Error::new(ErrorKind::Unreachable, "fence", message).with("file", path.display());
                return Err(error.retryable());
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(path, error.into())),
        }
    }
}

/// The token in the register. A register that is empty, or was not synced before a power cut, has none.
fn read(register: &File, path: &Path) -> Result<Option<FencingToken>> {
    let mut text = Vec::new();
    register.take(64).read_to_end(&mut text).map_err(|error| failed(path, error))?;
    if text.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok());
    number.and_then(FencingToken::new).map(Some).ok_or_else(|| {
        let message = "the register of the newest token is damaged: remove it while no client holds the lock";
        Error::new(ErrorKind::Layout, "fence", message).with("file", path.display())
    })
}

/// Writes and syncs the next content.
fn prepare(next: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    // An existing file is left by a dead writer, or placed by an attacker to redirect our write.
    let _ = fs::remove_file(next);
    let before = fs::metadata(path).map(|before| before.permissions()).ok();
    // Another user may open the file before its permissions are set, and would read what is written later.
    let mode = before.as_ref().map_or(0o666, |before| before.mode() & 0o777);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(next)?;
    before.map_or(Ok(()), |before| file.set_permissions(before))?;
    file.write_all(content)?;
    file.sync_all()
}

fn failed(path: &Path, error: io::Error) -> Error {
    let (kind, message) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "the file, or the register of its newest token next to it, cannot be written")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (ErrorKind::Exhausted, "the file system is full"),
        io::ErrorKind::NotFound => (ErrorKind::Config, "there is no such directory"),
        _ => (ErrorKind::Unreachable, "the file system failed"),
    };
    Error::new(kind, "fence", message).with("file", path.display()).caused_by(error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::error::Outcome;

    fn token(number: u64) -> Option<FencingToken> {
        FencingToken::new(number)
    }

    fn file() -> (tempfile::TempDir, FencedFile) {
        let directory = tempfile::tempdir().unwrap();
        let file = FencedFile::new(directory.path().join("data"));
        (directory, file)
    }

    #[test]
    fn a_claim_closes_the_file_to_older_holders_before_the_new_one_writes() {
        let (_directory, file) = file();
        file.write(token(1), "one").unwrap();
        file.claim(token(2)).unwrap();
        let error = file.write(token(1), "late").unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Lost, Outcome::NotApplied), "{error}");
        assert_eq!(file.claim(token(1)).unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(fs::read_to_string(&file.path).unwrap(), "one");
        file.write(token(2), "two").unwrap();
        file.write(token(2), "two, again").unwrap();
        assert_eq!(
            (fs::read_to_string(&file.path).unwrap().as_str(), file.newest().unwrap()),
            ("two, again", token(2))
        );
    }

    #[test]
    fn without_a_token_or_with_a_damaged_register_nothing_is_written() {
        let (_directory, file) = file();
        assert_eq!(file.write(None, "x").unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!((file.newest().unwrap(), file.path.exists()), (None, false));
        let register = file.sibling(".fence");
        for damaged in ["x", "12", "-1\n", "9223372036854775808\n", "1\n2\n"] {
            fs::write(&register, damaged).unwrap();
            assert_eq!(file.write(token(9), "x").unwrap_err().kind(), ErrorKind::Layout, "{damaged}");
        }
        for says_nothing in [&b""[..], &[0; 21]] {
            fs::write(&register, says_nothing).unwrap();
            file.write(token(1), "x").unwrap();
            assert_eq!(file.newest().unwrap(), token(1));
        }
    }

    #[test]
    fn a_link_or_a_pipe_in_the_place_of_the_register_is_refused_and_nothing_is_written_through_it() {
        let (directory, file) = file();
        let (register, target) = (file.sibling(".fence"), directory.path().join("target"));
        for is_there in [false, true] {
            if is_there {
                fs::write(&target, "").unwrap();
            }
            std::os::unix::fs::symlink(&target, &register).unwrap();
            assert!(file.write(token(1), "x").is_err() && file.claim(token(1)).is_err() && file.newest().is_err());
            assert_eq!((fs::read(&target).unwrap_or_default(), target.exists()), (Vec::new(), is_there));
            fs::remove_file(&register).unwrap();
        }
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &register, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(file.write(token(1), "x").is_err() && file.newest().is_err());
    }

    #[test]
    fn permissions_stay_and_what_a_dead_writer_left_is_in_nobodys_way() {
        let (_directory, file) = file();
        fs::write(&file.path, "old").unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(file.sibling(".fence.new"), "what is much longer than the next content").unwrap();
        file.write(FencingToken::MAX, "new").unwrap();
        assert_eq!(fs::read_to_string(&file.path).unwrap(), "new");
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!file.sibling(".fence.new").exists());
        let nowhere = FencedFile::new(file.path.join("x"));
        assert!(nowhere.claim(token(1)).is_err());
    }

    #[test]
    fn the_next_content_is_at_no_moment_open_to_more_users_than_the_file() {
        let (_directory, file) = file();
        fs::write(&file.path, "old").unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o600)).unwrap();
        let (next, is_written) = (file.sibling(".fence.new"), AtomicBool::new(false));
        let seen = thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut seen = 0;
                while !is_written.load(Ordering::Relaxed) {
                    seen |= fs::metadata(&next).map_or(0, |about| about.permissions().mode());
                }
                seen
            });
            (1..=500).for_each(|number| file.write(token(number), "secret").unwrap());
            is_written.store(true, Ordering::Relaxed);
            looks.join().unwrap()
        });
        assert_eq!(seen & 0o177, 0, "{seen:o}");
    }
}
