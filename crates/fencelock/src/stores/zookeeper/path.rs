//! The paths of a lock's nodes.

use super::config::{Config, segment_fault};
use super::layout::{disturbs_curator, looks_like_a_contender};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// The parent of a lock's nodes, and the mark that distinguishes them from other locks' nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LockPath<'n> {
    /// Without a slash at its end; `""` for the root.
    pub(super) parent: String,
    /// The name of the lock where all share one parent, else empty.
    pub(super) key: &'n str,
}

impl LockPath<'_> {
    pub(super) fn parent(&self) -> &str {
        if self.parent.is_empty() { "/" } else { &self.parent }
    }

    pub(super) fn child(&self, node: &str) -> String {
        format!("{}/{node}", self.parent)
    }

    /// The parent and everything above it, the highest first.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = &str> {
        let ends = self.parent.match_indices('/').map(|(at, _)| at).skip(1).chain([self.parent.len()]);
        ends.filter(|end| *end > 0).map(|end| &self.parent[..end])
    }
}

/// The node with the records of broken grants: under the parent, or next to a parent that all locks share. The parent may be a lock of
/// other clients. The name sorts behind every contender, so that no client that compares whole names waits for it.
pub(super) const RECORDS: &str = "~fencelock";

/// The node that shows the store's time. The node exists only within transactions.
pub(super) const NOW: &str = "~fencelock-now";

impl Config {
    /// The node under which the records of the breaks of `name` are.
    pub(super) fn records(&self, name: &Name) -> String {
        self.kept("breaks", name)
    }

    /// The node under which `name` has its records, or its notes.
    pub(super) fn kept(&self, kind: &str, name: &Name) -> String {
        let slash = if self.dialect.one_parent && !self.parent.is_empty() { "" } else { "/" };
        let name = name.as_str().replace('%', "%25").replace('/', "%2F");
        format!("{}{slash}{RECORDS}/{kind}/{name}", self.parent)
    }

    /// Where `name` is locked.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] for a name that the layout cannot hold: names stand in paths unchanged.
    pub(super) fn home<'n>(&self, name: &'n Name) -> Result<LockPath<'n>> {
        let text = name.as_str();
        let fault = if self.dialect.one_parent { key_fault(text) } else { nested_fault(text) };
        let at_the_root = self.parent.is_empty() && text.split('/').next() == Some("zookeeper");
        let first = text.split('/').next().unwrap_or(text);
        let is_ours = !self.dialect.one_parent && [RECORDS, NOW].contains(&first);
        let fault = fault.or(is_ours.then_some("fencelock keeps its own nodes under this name"));
        let fault = fault.or(at_the_root.then_some("/zookeeper belongs to the servers"));
        if let Some(fault) = text.split('/').find_map(segment_fault).or(fault) {
            return Err(Error::new(ErrorKind::InvalidName, "name", fault)
                .with("name", name)
                .with("layout", self.dialect.name));
        }
        if self.dialect.one_parent {
            return Ok(LockPath { parent: self.parent.clone(), key: text });
        }
        Ok(LockPath { parent: format!("{}/{text}", self.parent), key: "" })
    }
}

/// The fault of a name below its first slash, where its parts lie among the contenders of another lock.
fn nested_fault(name: &str) -> Option<&'static str> {
    let mut below = name.split('/').skip(1);
    below.any(|part| disturbs_curator(part) || looks_like_a_contender(part)).then_some(
        "a part of the name after a slash is a node among the contenders of the lock above it: it must not look like one (end in `lock-` and a number, …) nor sort before every number, or clients of that lock would wait for it",
    )
}

/// The fault of a lock's name that is part of the nodes' names.
fn key_fault(name: &str) -> Option<&'static str> {
    if name.contains('/') {
        Some("locks under one parent have no `/` in their names")
    } else if name.starts_with("_c_") {
        Some("under one parent, `_c_` begins the id of a contender, and no name of a lock")
    } else if name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        Some("under one parent, a name of digits looks like a contender's number")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreUrl;

    fn config(url: &str) -> Config {
        Config::from_url(StoreUrl::parse(url).unwrap()).unwrap()
    }

    fn refused(config: &Config, name: &str) -> bool {
        config.home(&Name::new(name).unwrap()).is_err_and(|error| error.kind() == ErrorKind::InvalidName)
    }

    #[test]
    fn names_are_paths_below_the_parent() {
        let name = Name::new("a b/c").unwrap();
        let home = config("zk://h/x/y");
        let home = home.home(&name).unwrap();
        assert_eq!((home.parent(), home.child("n").as_str()), ("/x/y/a b/c", "/x/y/a b/c/n"));
        assert_eq!(home.ancestors().collect::<Vec<_>>(), ["/x", "/x/y", "/x/y/a b", "/x/y/a b/c"]);
        let root = config("zk://h/?layout=shared");
        let name = Name::new("job").unwrap();
        let home = root.home(&name).unwrap();
        assert_eq!((home.parent(), home.child("n").as_str(), home.ancestors().count()), ("/", "/n", 0));
    }

    #[test]
    fn records_of_breaks_are_among_no_locks_contenders() {
        let name = Name::new("a/b%c").unwrap();
        for (url, expected) in [
            ("zk://h/x/y", "/x/y/~fencelock/breaks/a%2Fb%25c"),
            ("zk://h/", "/~fencelock/breaks/a%2Fb%25c"),
            ("zk://h/x/y?layout=shared", "/x/y~fencelock/breaks/a%2Fb%25c"),
            ("zk://h/?layout=shared", "/~fencelock/breaks/a%2Fb%25c"),
        ] {
            assert_eq!(config(url).records(&name), expected);
        }
        assert!(!disturbs_curator(RECORDS) && !looks_like_a_contender(RECORDS) && RECORDS > "lock-0000000000");
    }

    #[test]
    fn names_that_the_layout_cannot_hold_are_refused() {
        let plain = config("zk://h/locks");
        for name in
            ["job/0", "job/-x", "job/ x", "job/lock-0000000001", "job/0000000001", "job/x/.y", "job/lock-", "😀"]
        {
            assert!(refused(&plain, name), "{name}");
        }
        for name in ["lock-0000000001", "-rf", " job", "..job", "job/1", "job/x", "日本/é", "0", "zookeeper"] {
            assert!(!refused(&plain, name), "{name}");
        }
        assert!(refused(&config("zk://h/"), "zookeeper/x"));
        assert!(["~fencelock", "~fencelock/breaks", "~fencelock-now"].iter().all(|name| refused(&plain, name)));
        let shared = config("zk://h/locks?layout=shared");
        for name in ["job/x", "_c_x", "17", "0000000001", "-1"] {
            assert!(refused(&shared, name), "{name}");
        }
        assert!(!refused(&shared, "lock-1"));
    }
}
