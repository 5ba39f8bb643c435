//! A password: one that was given, or one that is asked for anew at each connection, so that a change of it on the server ends nobody.

use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// What is said to who gives a password and a way to ask for it.
#[allow(dead_code, reason = "in a build with some stores only, nobody may ask")]
pub(crate) const TWO_PASSWORDS: &str =
    "the password is in the URL, and is to be asked for or read from `password_file`: leave one out";

type Ask = dyn Fn() -> Result<String> + Send + Sync;

/// A password, or how to get it.
#[derive(Clone)]
#[allow(dead_code, reason = "in a build with some stores only, nobody may ask")]
pub(crate) enum Secret {
    Given(String),
    /// May block.
    Asked(Arc<Ask>),
}

impl Secret {
    /// What a callback of the user's says.
    pub(crate) fn asked<E>(ask: impl Fn() -> Result<String, E> + Send + Sync + 'static) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self::Asked(Arc::new(move || {
            let failed = |error: E| {
                let error = error.into();
                fault("the password could not be had from the program").with("cause", &error).caused_by(error)
            };
            ask().map_err(failed).and_then(|given| match given.is_empty() {
                true => Err(fault("the password that the program gave is empty")),
                false => Ok(given),
            })
        }))
    }

    /// What a file says, without the line break at its end.
    pub(super) fn in_file(path: PathBuf) -> Self {
        Self::Asked(Arc::new(move || {
            let fault = |message| fault(message).with("password_file", path.display());
            let said = std::fs::read_to_string(&path);
            let said = said.map_err(|error| fault("the file of the password cannot be read").with("cause", error))?;
            let password = said.strip_suffix('\n').map_or(&*said, |line| line.strip_suffix('\r').unwrap_or(line));
            match password.is_empty() {
                true => Err(fault("the file of the password is empty")),
                false => Ok(password.to_owned()),
            }
        }))
    }

    /// The password as it is now. Asked on a thread where blocking disturbs nobody.
    #[allow(dead_code, reason = "in a build with some stores only, nobody may ask")]
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

fn fault(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "connect", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(secret: &Secret) -> Result<String> {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(secret.read())
    }

    #[test]
    fn a_file_is_read_anew_each_time_and_what_is_wrong_names_it_and_not_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let secret = Secret::in_file(path.clone());
        for (content, password) in [("one\n", "one"), ("two", "two"), ("three\r\n", "three"), (" 4 \n\n", " 4 \n")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read(&secret).unwrap(), password);
        }
        for content in [&b""[..], b"\n", b"s3cret\xff"] {
            std::fs::write(&path, content).unwrap();
            let error = read(&secret).unwrap_err();
            let told = format!("{error:?}");
            assert!(told.contains(&*path.to_string_lossy()) && !told.contains("s3cret"), "{told}");
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read(&secret).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn a_program_is_asked_and_its_error_is_told() {
        assert_eq!(read(&Secret::asked(|| Ok::<_, Error>("word".to_owned()))).unwrap(), "word");
        let error = read(&Secret::asked(|| Err("the vault is sealed"))).unwrap_err();
        assert!(error.to_string().contains("the vault is sealed"), "{error}");
        assert!(read(&Secret::asked(|| Ok::<_, Error>(String::new()))).is_err());
        assert_eq!(format!("{:?}", Secret::Given("s3cret".to_owned())), "***");
    }
}
