//! Servers that drills and scenes take place on.

use std::io;

use fencelock_lab::Site;

/// Servers of one kind, for drills and scenes one after the other. Each store has one of these; everything that runs over
/// real servers is written for all of them.
pub trait Bed: Send + Sync {
    /// Where one drill or scene takes place.
    type Site: Site + 'static;

    /// The site of one drill or scene: `name`, a word that no other one has, keeps its locks apart from theirs, and
    /// `clients` clients have ways of their own to the servers.
    ///
    /// # Errors
    /// Whatever the system says.
    fn site(&self, name: &str, clients: usize) -> io::Result<Self::Site>;

    /// Mends every server; returns once all of them serve. Repeatable.
    ///
    /// # Errors
    /// When one does not come back.
    fn heal(&self) -> io::Result<()>;
}
