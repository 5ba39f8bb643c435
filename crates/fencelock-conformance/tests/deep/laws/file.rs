//! The store `file:` keeps the laws of time.

use crate::fixtures::Directory;

fencelock_conformance::suite!("file", Directory::of_processes, laws = timed);

mod in_one_process {
    fencelock_conformance::suite!("file", super::Directory::of_one_process, only = mutexes, laws = timed);
}
