//! The law about fenced resources: no older token is accepted after a newer one was.

use super::check::{Law, Report, Violation};
use super::section::History;

pub(super) fn check(history: &History, report: &mut Report) {
    let refused = history.writes.iter().filter(|write| !write.accepted).count();
    report.writes = (history.writes.len(), refused);
    // By lock: the newest token accepted so far, and the write that brought it.
    let mut newest: Vec<Option<(i64, usize)>> = vec![None; history.locks.len()];
    for (index, write) in history.writes.iter().enumerate().filter(|(_, write)| write.accepted) {
        let newest = &mut newest[write.lock as usize];
        match *newest {
            Some((token, against)) if write.token < token => report.violations.push(Violation {
                law: Law::FencedResource,
                lock: write.lock,
                who: index,
                against: Some(against),
            }),
            _ => *newest = Some((write.token, index)),
        }
    }
}
