//! Values that are made once in the fleet.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::primitives::Mutex;
use crate::store::Note;

/// A value that one client of the fleet makes, and all clients use: a cache that is initialised once, a schema that is migrated once.
///
/// The value is kept as a [note](crate::Guard::write_note) on the lock of that name, without an end, with its version. For another version,
/// even an older one, it is made anew: let all programs agree.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let client = fencelock::Client::connect("memory:").await?;
/// let warm = client.once("cache/warm", "v1")?;
/// let made = warm.get_or_make(async || Ok::<_, fencelock::Error>(b"4,711 rows".to_vec())).await?;
/// let again = warm.get_or_make(async || -> fencelock::Result<Vec<u8>> { unreachable!("it is there") }).await?;
/// assert_eq!((&*made, &*again), (&b"4,711 rows"[..], &b"4,711 rows"[..]));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Once {
    lock: Mutex,
    version: Arc<str>,
}

impl Once {
    /// The longest version, in bytes.
    pub const MAX_VERSION: usize = 128;
    /// The longest value that can be made, in bytes.
    pub const MAX_VALUE: usize = Note::MAX_BYTES - Self::MAX_VERSION - 1;

    /// The limit of [`Once::get_or_make`]'s wait for another client that makes the value; without limit by default.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        Self { lock: self.lock.timeout(limit), ..self }
    }

    /// The value, if a client made it for this version. A single request.
    ///
    /// # Errors
    /// As [`Client::note`].
    pub async fn get(&self) -> Result<Option<Arc<[u8]>>> {
        let note = self.lock.client().note(self.lock.name()).await?.note;
        let of_version = |note: Note| {
            let value = note.value.strip_prefix(self.version.as_bytes())?.strip_prefix(b"\n")?;
            Some(Arc::from(value))
        };
        Ok(note.and_then(of_version))
    }

    /// Returns the value for this version; if there is none, `make` makes it under the lock, while other callers wait. Up to
    /// [`Once::MAX_VALUE`] bytes.
    ///
    /// If `make` fails, nothing is kept, only its caller gets the error, and the next waiter tries. The next waiter also follows a client
    /// that dies during `make`. So `make` may run more than once. When the lock is lost, `make` is dropped at its next await, before
    /// another client makes the value; fence its writes elsewhere.
    ///
    /// # Errors
    /// The error of `make`; as [`Mutex::acquire`] and [`Guard::write_note`](crate::Guard::write_note), turned into `E`. [`ErrorKind::Lost`]
    /// where the lock was lost while `make` ran: nothing is kept.
    ///
    /// # Cancel safety
    /// Dropping the future drops `make` and releases the lock in the background.
    pub async fn get_or_make<E, F, Fut>(&self, make: F) -> Result<Arc<[u8]>, E>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: From<Error>,
    {
        if let Some(made) = self.get().await? {
            return Ok(made);
        }
        let guard = self.lock.acquire().await?;
        // Another client may have made it while we waited.
        if let Some(made) = self.get().await? {
            let _ = guard.release().await;
            return Ok(made);
        }
        let value = tokio::select! {
            biased;
            _ = guard.lost() => {
                let message = "the lock was lost while the value was made, which is given up";
                return Err(Error::new(ErrorKind::Lost, "once", message).with("name", self.lock.name()).into());
            }
            made = make() => made?,
        };
        if value.len() > Self::MAX_VALUE {
            let message = format!("a value has {} bytes at most, and this one has {}", Self::MAX_VALUE, value.len());
            return Err(Error::new(ErrorKind::Config, "once", message).with("name", self.lock.name()).into());
        }
        guard.write_note([self.version.as_bytes(), b"\n", &value].concat(), None).await?;
        let _ = guard.release().await;
        Ok(value.into())
    }
}

impl Client {
    /// The value `name`, made once for `version`: 1 to 128 bytes without line breaks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Config`] for another version; [`ErrorKind::Unsupported`] where
    /// [`Capability::notes`](crate::capability::Capability) is false.
    pub fn once(&self, name: impl AsRef<str>, version: &str) -> Result<Once> {
        let lock = super::with_notes(self, name, "once")?;
        if version.is_empty() || version.len() > Once::MAX_VERSION || version.contains('\n') {
            let message = "a version is 1 to 128 bytes without line breaks";
            return Err(Error::new(ErrorKind::Config, "once", message).with("name", lock.name()));
        }
        Ok(Once { lock, version: version.into() })
    }
}
