//! A password: given once, or requested anew at each connection, so that a client survives a change of it on the server.

#![allow(dead_code, reason = "unused in a build without stores that take a password")]

use std::error::Error as StdError;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The message for a user who gives a password and a way to ask for it.
pub(crate) const TWO_PASSWORDS: &str =
    "the password is in the URL, and is to be asked for or read from `password_file`: leave one out";

type Ask = dyn Fn() -> Result<String> + Send + Sync;

/// A password, or how to get it.
#[derive(Clone)]
pub(crate) enum Secret {
    Given(String),
    /// May block.
    Asked(Arc<Ask>),
}

impl Secret {
    /// The result of the user's callback.
    pub(crate) fn asked<E>(ask: impl Fn() -> Result<String, E> + Send + Sync + 'static) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self::Asked(Arc::new(move || match ask().map_err(Into::into) {
            Ok(given) if given.is_empty() => Err(fault("the password that the program gave is empty")),
            Ok(given) => Ok(given),
            Err(error) => Err(fault("the program gave no password").with("cause", &error).caused_by(error)),
        }))
    }

    /// The content of a file, without the line break at its end.
    pub(super) fn in_file(path: PathBuf) -> Self {
        Self::Asked(Arc::new(move || {
            let fault = |message| fault(message).with("password_file", path.display());
            refuse_shared("password_file", &path)?;
            let said = std::fs::read_to_string(&path);
            let said = said.map_err(|error| fault("the file of the password cannot be read").with("cause", error))?;
            let password = said.strip_suffix('\n').map_or(&*said, |line| line.strip_suffix('\r').unwrap_or(line));
            if password.is_empty() { Err(fault("the file of the password is empty")) } else { Ok(password.to_owned()) }
        }))
    }

    /// The present password. Requested on a thread that may block.
    pub(crate) async fn read(&self) -> Result<String> {
        match self {
            Self::Given(password) => Ok(password.clone()),
            Self::Asked(ask) => {
                let ask = Arc::clone(ask);
                let asked = tokio::task::spawn_blocking(move || ask()).await;
                asked.map_err(|_| fault("asking the program for the password failed: it panicked"))?
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Refuses the file of a secret that other users can read. Root may let a group of this process read a file of root's.
pub(crate) fn refuse_shared(option: &'static str, path: &std::path::Path) -> Result<()> {
    let Ok(about) = std::fs::metadata(path) else { return Ok(()) };
    let is_lent = about.uid() == 0 && !rustix::process::geteuid().is_root();
    match about.mode() & if is_lent { 0o007 } else { 0o077 } {
        0 => Ok(()),
        _ => Err(fault("the file of a secret can be read by other users: chmod 600").with(option, path.display())),
    }
}

fn fault(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "connect", message)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Makes an empty file that no other user can read.
    fn private(path: &std::path::Path) {
        std::fs::write(path, "").unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    fn read(secret: &Secret) -> Result<String> {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(secret.read())
    }

    #[test]
    fn a_file_is_read_anew_each_time_and_what_is_wrong_names_it_and_not_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let secret = Secret::in_file(path.clone());
        private(&path);
        for (content, password) in [("one\n", "one"), ("two", "two"), ("three\r\n", "three"), (" 4 \n\n", " 4 \n")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read(&secret).unwrap(), password);
        }
        for content in [&b""[..], b"\n", b"s3cret\xff"] {
            std::fs::write(&path, content).unwrap();
            let error = read(&secret).unwrap_err();
            let message = format!("{error:?}");
            assert!(message.contains(&*path.to_string_lossy()) && !message.contains("s3cret"), "{message}");
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read(&secret).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn a_file_that_other_users_can_read_is_refused_with_the_chmod_that_helps() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        private(&path);
        std::fs::write(&path, "s3cret").unwrap();
        for (mode, is_private) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match read(&Secret::in_file(path.clone())) {
                Ok(password) => assert!(is_private && password == "s3cret", "{mode:o}"),
                Err(error) => assert!(!is_private && error.to_string().contains("chmod 600"), "{mode:o}: {error}"),
            }
        }
    }

    #[test]
    fn a_program_is_asked_and_its_error_is_reported() {
        assert_eq!(read(&Secret::asked(|| Ok::<_, Error>("word".to_owned()))).unwrap(), "word");
        let error = read(&Secret::asked(|| Err("the vault is sealed"))).unwrap_err();
        assert!(error.to_string().contains("the vault is sealed"), "{error}");
        assert!(read(&Secret::asked(|| Ok::<_, Error>(String::new()))).is_err());
        assert_eq!(format!("{:?}", Secret::Given("s3cret".to_owned())), "***");
    }
}
