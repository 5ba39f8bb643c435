//! The claims of `docs/redis-what-it-cannot-promise.md` about two holders at once, each tried once: the page has the
//! counts.

use fencelock_torture::redis::experiment::{Experiment, Lock};
use fencelock_torture::redis::failovers::Replicated;

/// Demands that a second client is granted the lock. The first client may still believe in its lock, on a slow machine. Its
/// late write is refused with tokens, and accepted without.
fn is_granted_twice(experiment: Experiment, lock: Lock) {
    let findings = experiment.run(lock, 1, 1).unwrap();
    assert_eq!(findings.second_grants(), 1, "{findings}");
    assert_eq!(findings.late_writes(), usize::from(!lock.is_fenced()), "{findings}");
    assert!(findings.tokens_rise(), "{findings}");
}

#[test]
fn a_failover_that_lost_a_lock_grants_it_again_and_the_fence_refuses_the_older_one() {
    is_granted_twice(Experiment::FailoverCutOff, Lock::Fair);
}

#[test]
fn a_failover_that_lost_a_lock_without_tokens_lets_two_write() {
    is_granted_twice(Experiment::FailoverCutOff, Lock::ByHand);
}

#[test]
fn a_failover_that_lost_a_lock_of_another_clients_layout_lets_two_write() {
    is_granted_twice(Experiment::FailoverCutOff, Lock::Plain);
    is_granted_twice(Experiment::FailoverCutOff, Lock::Redisson);
}

#[test]
fn a_lock_that_the_server_evicted_is_granted_again_and_the_fence_refuses_the_older_one() {
    is_granted_twice(Experiment::Evicted, Lock::Fair);
}

#[test]
fn a_holder_without_answers_stops_believing_before_its_lease_ends_in_every_layout() {
    for lock in [Lock::Fair, Lock::Plain, Lock::Redisson] {
        let findings = Experiment::HolderPaused.run(lock, 1, 1).unwrap();
        assert_eq!((findings.second_grants(), findings.overlaps()), (1, 0), "{findings}");
    }
}

#[test]
fn a_primary_that_keeps_serving_after_its_replacement_grants_twice_and_the_fence_refuses_the_older_one() {
    is_granted_twice(Experiment::Split, Lock::Fair);
}

#[test]
fn a_holder_that_was_renewed_after_the_clock_went_back_and_died_is_followed_when_its_lease_ends() {
    is_granted_twice(Experiment::ClockBehindRenewed, Lock::Fair);
}

#[test]
fn a_master_that_forgot_what_it_granted_makes_no_second_quorum_while_the_first_one_believes() {
    let findings = Experiment::QuorumRestartEmpty.run(Lock::Redlock, 1, 1).unwrap();
    assert_eq!(findings.overlaps(), 0, "{findings}");
}

/// Without the acknowledgement by replicas a failover can lose a grant. With the acknowledgement by all replicas, no grant is lost.
fn a_failover_loses_no_grant_that_every_replica_has(topology: Replicated, replicas: u32) {
    let run = |what, min_replicas| {
        let findings = topology.run(what, min_replicas, 1, 1).unwrap();
        assert!(findings.late_writes() == 0 && findings.tokens_rise(), "{findings}");
        findings
    };
    let findings = run(Experiment::FailoverCutOff, 0);
    assert_eq!(findings.second_grants(), 1, "{findings}");
    let findings = run(Experiment::FailoverCutOff, replicas);
    assert_eq!(findings.second_grants(), 0, "no replica could acknowledge the first grant: {findings}");
    for what in [Experiment::FailoverAtOnce, Experiment::Split] {
        let findings = run(what, replicas);
        assert_eq!((findings.second_grants(), findings.overlaps()), (1, 0), "{findings}");
    }
}

#[test]
fn a_failover_by_sentinels_loses_no_grant_that_every_replica_has() {
    a_failover_loses_no_grant_that_every_replica_has(Replicated::Sentinel, 2);
}

#[test]
fn a_failover_in_a_cluster_loses_no_grant_that_every_replica_has() {
    a_failover_loses_no_grant_that_every_replica_has(Replicated::Cluster, 1);
}
