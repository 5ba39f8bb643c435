//! The store `file:` keeps every law that can be tried on it.

use crate::fixtures::Directory;

fencelock_conformance::suite!("file", Directory::of_processes, laws = untimed);

mod in_one_process {
    fencelock_conformance::suite!("file", super::Directory::of_one_process, only = mutexes, laws = untimed);
}
