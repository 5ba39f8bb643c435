//! Watches are kept by the connection's server: on a new connection they have to be set anew.

use std::sync::Arc;

use crate::proto::frame::Frame;
use crate::proto::request::{self, WatchedPaths};
use crate::watches::{WatchKind, WatchTable};

/// The longest frame to set watches with, in bytes: a server with the smallest sensible buffer takes it.
const LONGEST: usize = 128 * 1024;

/// The frames that set all watches anew, split by the frame limit. Changes after the transaction `seen` are reported at once.
pub(crate) fn frames(watches: &WatchTable, seen: i64, max_frame: usize) -> Vec<Frame> {
    /// The header, the transaction and three lengths.
    const FIXED: usize = 8 + 8 + 12;
    let room = LONGEST.min(max_frame) - FIXED;
    let mut all: Vec<(Arc<str>, WatchKind)> = Vec::new();
    watches.for_each(|path, kind| all.push((Arc::clone(path), kind)));
    let mut frames = Vec::new();
    let (mut piece, mut length) = (WatchedPaths::default(), 0);
    for (path, kind) in &all {
        let adds = 4 + path.len();
        if length > 0 && length + adds > room {
            frames.push(request::set_watches(seen, &std::mem::take(&mut piece)));
            length = 0;
        }
        length += adds;
        match kind {
            WatchKind::Data => piece.data.push(path),
            WatchKind::Absent => piece.exist.push(path),
            WatchKind::Children => piece.child.push(path),
        }
    }
    if length > 0 {
        frames.push(request::set_watches(seen, &piece));
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frame_is_longer_than_the_limit_and_none_is_sent_for_nothing() {
        let watches = Arc::new(WatchTable::default());
        assert!(frames(&watches, 7, 4096).is_empty());
        let _kept: Vec<_> = (0..10_000)
            .map(|number| watches.register(&format!("/locks/{number}/lock-0000000000"), WatchKind::Data, 0))
            .collect();
        for (limit, count) in [(4096, 70..90), (1 << 20, 3..4)] {
            let frames = frames(&watches, 7, limit);
            assert!(frames.iter().all(|frame| frame.record_len() <= limit.min(LONGEST)));
            assert!(count.contains(&frames.len()), "{}", frames.len());
        }
    }
}
