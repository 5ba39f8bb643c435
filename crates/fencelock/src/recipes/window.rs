//! Windows: an action at most once within a time.

use std::time::{Duration, SystemTime};

use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::primitives::Mutex;
use crate::store::{NoteOrder, Owner};
use crate::token::FencingToken;

/// Admits the first caller, and no other for the length of the window: an order that was submitted twice within five seconds is taken once.
///
/// The window counts by the store's clock, from the first admission, even if the first caller leaves or dies. If that clock is set back,
/// the window stays closed for that much longer. The store keeps a [note](crate::Guard::write_note) on the lock of that name, which no
/// other program may use otherwise.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use fencelock::recipes::Passage;
/// use fencelock::Client;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let client = Client::connect("memory:").await?;
/// let order = client.window("order/4711", Duration::from_secs(5))?;
/// assert!(matches!(order.pass().await?, Passage::First { .. }));
/// match order.pass().await? {
///     Passage::First { .. } => unreachable!("that was a moment ago"),
///     Passage::Refused { first, left, .. } => println!("{first} was first; again in {left:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Window {
    lock: Mutex,
    length: Duration,
}

/// Whether a [`Window`] admitted the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a refused caller must not continue"]
pub enum Passage {
    /// Admitted: no other caller is admitted until the window ends.
    First {
        /// A fencing token, higher than the tokens of all earlier admissions; `None` where the store has none.
        token: Option<FencingToken>,
    },
    /// Refused.
    Refused {
        /// The client that was admitted.
        first: Owner,
        /// When the client was admitted, by the store's clock.
        at: SystemTime,
        /// How long ago the client was admitted, by the store's clock.
        ago: Duration,
        /// How long the window is still closed.
        left: Duration,
    },
}

impl Client {
    /// The window `name`, which admits a single caller in `length`: 1 ms to 36,500 days.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Config`] for another length; [`ErrorKind::Unsupported`] where
    /// [`Capability::notes`](crate::capability::Capability) is false.
    pub fn window(&self, name: impl AsRef<str>, length: Duration) -> Result<Window> {
        let lock = super::with_notes(self, name, "window")?;
        if length < Duration::from_millis(1) || length > NoteOrder::MAX_TTL {
            let message = "a window is 1 ms to 36,500 days long";
            return Err(Error::new(ErrorKind::Config, "window", message).with("name", lock.name()));
        }
        Ok(Window { lock, length })
    }
}

impl Window {
    /// The limit of [`Window::pass`]'s wait for the lock, which other callers take for a moment; without limit by default.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        Self { lock: self.lock.timeout(limit), ..self }
    }

    /// Asks for admission. The call holds the lock of that name for a moment, and takes four requests, or three where it is refused.
    ///
    /// # Errors
    /// As [`Mutex::acquire`], [`Client::note`] and [`Guard::write_note`](crate::Guard::write_note). After an error whose
    /// [outcome](Error::outcome) is unknown, the caller may have been admitted: the window may be closed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the window is closed; the lock is released in the background.
    pub async fn pass(&self) -> Result<Passage> {
        let guard = self.lock.acquire().await?;
        let read = self.lock.client().note(self.lock.name()).await?;
        let passage = match &read.note {
            Some(note) => Passage::Refused {
                first: note.owner.clone(),
                at: note.written,
                ago: read.age().unwrap_or_default(),
                left: note.expires.map_or(Duration::MAX, |end| end.duration_since(read.now).unwrap_or_default()),
            },
            None => {
                guard.write_note("", Some(self.length)).await?;
                Passage::First { token: guard.token() }
            }
        };
        // An unconfirmed release is retried in the background, and changes nothing about the admission.
        let _ = guard.release().await;
        Ok(passage)
    }
}
