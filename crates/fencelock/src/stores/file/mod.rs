//! Locks in a local directory: the embedded default, for the processes of one machine.
//!
//! A lock lives as long as its process does, however long that sleeps: the kernel, not a clock, decides which processes live. `NOTES.md` in
//! this folder has the layout, and the effects of a crash, a power cut and a restored backup.

mod breaks;
mod bucket;
mod ceiling;
pub(crate) mod config;
mod directory;
mod enter;
mod fault;
mod files;
mod layout;
mod line;
mod linux;
mod listen;
mod notes;
mod place;
mod process;
mod session;
mod sessions;
mod show;
mod sweep;
#[cfg(test)]
mod tests;
pub(crate) mod ticket;
mod trust;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;

use self::config::Config;
use self::directory::Directory;
use self::enter::Patience;
use self::session::{FileSession, SessionCore};
use self::show::NameList;
use crate::error::Result;
use crate::name::Name;
use crate::store::{
    AnyStore, Break, Capability, Liveness, NoteOrder, NoteRead, Opened, Opening, Order, Outline, Owner, Pace, Page,
    Presumption, Queue, RequestId, Residue, Store, StoreInfo, StoreUrl, Tokens, Waiters,
};
use crate::sync::Mutex;
use crate::time::{Clock, SystemClock};

/// The registry's entry of this store.
pub(crate) const INFO: StoreInfo =
    StoreInfo { options: config::OPTIONS, capability: Some(capability), open: Some(open), ..StoreInfo::OFF };

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let store: Arc<dyn Store> = Arc::new(FileStore::with(Config::from_url(url)?)?);
        Ok(store)
    })
}

/// The interval at which a client checks that its tickets still exist. A user who removes tickets by hand, or cleans `/tmp`, gives the lock
/// to the next waiter, for any ttl.
const LOOKS: Duration = Duration::from_secs(2);

fn capability() -> Capability {
    Capability {
        store: "file",
        layout: layout::LAYOUT_NAME,
        liveness: Liveness::Process,
        order: Order::Fifo,
        tokens: Tokens::ClockFlooredCounter,
        presumes: &[Presumption::ProcessLives, Presumption::FilesStay],
        shared_claims: true,
        permits: true,
        notes: true,
        waiters: Waiters::Looked(Duration::from_millis(50)),
        detection_slack: Duration::from_secs(2),
        wake_bound: Duration::from_secs(2),
        same_as: &[],
        residue: &[Residue::Buckets(4096), Residue::Notes, Residue::Breaks, Residue::LeftByCrashed],
        pace: Pace { longest_interval: Some(LOOKS), ..Pace::DEFAULT },
        blocking: true,
    }
}

/// Locks in a local directory, on a file system that [`FileStore::open`] trusts: ext2/3/4, XFS, Btrfs, ZFS, F2FS, tmpfs,
/// overlay. Network file systems are refused.
///
/// The store excludes processes of one machine, with one kernel. The store does not protect against a user who may write in the directory
/// and removes files by hand; a holder notices that within 2 s, for any ttl.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// let store = fencelock::file::FileStore::open(directory.path())?;
/// # let _ = store;
/// # Ok::<(), fencelock::Error>(())
/// ```
#[derive(Debug)]
pub struct FileStore {
    config: Config,
    directory: Mutex<Arc<Directory>>,
    capability: Capability,
}

impl FileStore {
    /// Opens the directory `path`, which is absolute. If it is missing it is made, with mode 0700; its parent is not.
    ///
    /// Everything inside takes its permissions from the directory, so a group that may write in the directory shares its locks. A
    /// directory that all users may write, or of another user than root and this one, is refused.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a path that cannot be a lock directory, `Denied` without
    /// permission, `Unsupported` for a file system that is not trusted, `Layout` for a directory of another release,
    /// `Exhausted` for a full disk.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(Config::new(path.as_ref())?)
    }

    /// A store with options.
    ///
    /// # Errors
    /// When the path is not absolute UTF-8.
    pub fn builder(path: impl AsRef<Path>) -> Result<FileStoreBuilder> {
        Ok(FileStoreBuilder { config: Config::new(path.as_ref())? })
    }

    fn with(config: Config) -> Result<Self> {
        let directory = Directory::open(&config)?;
        Ok(Self { config, directory: Mutex::new(directory), capability: capability() })
    }

    fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.directory.lock())
    }

    /// The directory; opened anew if another process removed it meanwhile.
    fn intact_directory(&self) -> Result<Arc<Directory>> {
        let directory = self.directory();
        if directory.is_intact().map_err(|errno| fault::fault("open", &directory.path, errno))? {
            return Ok(directory);
        }
        let directory = Directory::open(&self.config)?;
        *self.directory.lock() = Arc::clone(&directory);
        Ok(directory)
    }

    fn patience(&self) -> Patience<'static> {
        Patience::new(&SystemClock, self.config.request_deadline)
    }

    fn open_session(&self, owner: &Owner, patience: Duration, clock: Arc<dyn Clock>) -> Result<Arc<SessionCore>> {
        let directory = self.intact_directory()?;
        directory.sweep();
        SessionCore::open(&self.config, directory, owner, patience, clock)
    }
}

impl From<FileStore> for AnyStore {
    fn from(store: FileStore) -> Self {
        Arc::new(store).into()
    }
}

impl Store for FileStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            let confirmed = opening.clock.now();
            let core = self.open_session(&opening.owner, opening.patience(), opening.clock)?;
            let (events, session) = (core.events(), Arc::new(FileSession(core)));
            Ok(Opened { events, session, ttl: None, confirmed, capability: None })
        })
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move { self.intact_directory()?.read_queue(name, page) })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move { self.intact_directory()?.read_outline(name, mine) })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let portion = async move |list: Option<NameList>| {
            // Other tasks of this thread run in between.
            tokio::task::yield_now().await;
            let list = list.map_or_else(|| self.intact_directory().and_then(NameList::of), Ok)?;
            Ok(list.go_on(prefix)?.map(|(names, list)| (names, Some(list))))
        };
        Box::pin(stream::try_unfold(None, portion))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.intact_directory()?.break_grant(order, self.patience()).await })
    }

    fn write_note<'a>(&'a self, order: &'a NoteOrder) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.intact_directory()?.write_note(order, SystemTime::now(), self.patience()).await })
    }

    fn note<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<NoteRead>> {
        Box::pin(async move { self.intact_directory()?.read_note(name, SystemTime::now()) })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move { self.intact_directory()?.read_breaks(name) })
    }
}

/// A [`FileStore`] with options; made by [`FileStore::builder`].
#[derive(Debug, Clone)]
pub struct FileStoreBuilder {
    config: Config,
}

impl FileStoreBuilder {
    /// Whether a missing directory is made. Default: yes.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.config.create = create;
        self
    }

    /// Whether child processes inherit the session, so that its locks last until the last of them ends. Default: no.
    ///
    /// Every child that this process starts inherits the session.
    #[must_use]
    pub fn inherit(mut self, inherit: bool) -> Self {
        self.config.inherit = inherit;
        self
    }

    /// How long the short internal locks of the directory are tried before
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) is the answer; at most nine tenths
    /// of the client's [`request_deadline`](crate::ClientBuilder::request_deadline). Default: 3 s.
    #[must_use]
    pub fn request_deadline(mut self, deadline: Duration) -> Self {
        self.config.request_deadline = deadline;
        self
    }

    /// Uses `boot` as the id of this boot of the machine.
    #[doc(hidden)]
    #[must_use]
    pub fn boot_id(mut self, boot: impl Into<String>) -> Self {
        self.config.boot = Some(boot.into());
        self.another_process()
    }

    /// Shares no memory with other stores of this process, as if it were another one.
    #[doc(hidden)]
    #[must_use]
    pub fn another_process(mut self) -> Self {
        self.config.apart = true;
        self
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    pub fn open(self) -> Result<FileStore> {
        FileStore::with(self.config)
    }
}
