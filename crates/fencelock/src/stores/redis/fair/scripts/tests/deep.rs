//! Tests by real clocks, with thousands of contenders, or with long random runs.

use fencelock_testbed::{PATIENCE, wait_until};
use redis::Value;

use super::bed::Bed;
use super::differential::the_scripts_answer_as_the_rule_does;

mod crowds;
mod leases;
mod losses;

impl Bed {
    /// Returns once a session has expired.
    fn until_gone(&mut self, session: u64) {
        let key = self.layout.session_key(session);
        assert!(wait_until(PATIENCE, || self.words(&["EXISTS", &key]) == Value::Int(0)));
    }
}

#[test]
fn the_scripts_answer_as_the_rule_does_in_a_thousand_queues() {
    the_scripts_answer_as_the_rule_does(1000);
}
