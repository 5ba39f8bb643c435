//! The laws of elections.

use std::future::pending;

use fencelock::memory::Operation;
use fencelock::recipes::Leading;
use fencelock::{ErrorKind, Loss};
use futures_util::{FutureExt, StreamExt};

use crate::support::{in_world, secs, settle};

fn addresses(seen: &[Option<Leading>]) -> Vec<Option<String>> {
    let text = |leading: &Leading| String::from_utf8_lossy(leading.address.as_deref().unwrap_or_default()).into_owned();
    seen.iter().map(|seen| seen.as_ref().map(text)).collect()
}

#[test]
fn one_candidate_leads_at_a_time_and_each_term_is_higher_than_the_last() {
    in_world(async |world, [one, other]| {
        let first = one.client.election("e").unwrap().campaign().await.unwrap();
        let candidate = other.client.election("e").unwrap();
        assert_eq!(candidate.campaign_within(secs(0)).await.unwrap_err().kind(), ErrorKind::TimedOut);
        let waits = tokio::spawn(async move { candidate.campaign().await });
        settle().await;
        assert!(!waits.is_finished());
        let term = first.term();
        first.resign().await.unwrap();
        let next = waits.await.unwrap().unwrap();
        assert!(term.is_some() && next.term() > term);
        drop(next);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn observers_see_each_leader_with_its_address_and_none_of_a_predecessor() {
    in_world(async |world, []| {
        let (one, other) = (world.process().await.client, world.process().await.client);
        let election = |client: &fencelock::Client| client.election("e").unwrap();
        let mut leaders = Box::pin(election(&other).leaders(secs(1)));
        let mut seen = vec![leaders.next().await.unwrap().unwrap()];
        let first = election(&one).address("one:1").campaign().await.unwrap();
        world.advance(secs(2)).await;
        let term = first.term();
        let look = async |leaders: &mut std::pin::Pin<Box<_>>| {
            let next = tokio::select! {
                next = futures_util::StreamExt::next(leaders) => next,
                () = world.advance(secs(3)) => None,
            };
            let next: Option<fencelock::Result<Option<Leading>>> = next;
            next.unwrap().unwrap()
        };
        seen.push(look(&mut leaders).await);
        assert_eq!(seen[1].as_ref().unwrap().term, term);
        assert_eq!(seen[1].as_ref().unwrap().owner.as_ref(), Some(one.owner()));
        // The leader leaves without resigning, and its address stays.
        drop(first.into_guard());
        let second = election(&other).campaign().await.unwrap();
        seen.push(look(&mut leaders).await);
        second.resign().await.unwrap();
        seen.push(look(&mut leaders).await);
        assert_eq!(addresses(&seen), [None, Some("one:1".to_owned()), Some(String::new()), None]);
        let third = election(&one).address("one:1").campaign().await.unwrap();
        third.resign().await.unwrap();
        assert_eq!(other.note("e").await.unwrap().note, None, "who resigns takes its address back");
    });
}

#[test]
fn a_leader_whose_renewals_fail_steps_down_while_it_is_still_certain() {
    in_world(async |world, [one, other]| {
        let leader = one.client.election("e").unwrap().campaign().await.unwrap();
        assert_eq!(leader.must_step_down().now_or_never(), None);
        world.advance(secs(30)).await;
        assert_eq!(leader.must_step_down().now_or_never(), None, "renewals come through");
        one.store.partition();
        let stepped = async {
            assert_eq!(leader.must_step_down().await, None);
            leader.check().unwrap();
            assert!(!leader.into_guard().remaining().is_zero());
        };
        tokio::select! {
            () = stepped => {}
            () = world.advance(secs(20)) => panic!("it never stepped down"),
        }
        drop(other);
    });
}

#[test]
fn the_body_of_a_leader_is_dropped_when_leadership_is_lost() {
    in_world(async |world, [one, other]| {
        let election = one.client.election("e").unwrap();
        let term = election.campaign().await.unwrap().run(async |term| term).await.unwrap();
        assert!(term.is_some());
        world.assert_no_place_is_left().await;
        let leader = election.campaign().await.unwrap();
        let run = tokio::spawn(async move { leader.run(|_term| pending::<()>()).await });
        settle().await;
        let holder = other.client.queue("e").await.unwrap().contenders[0].clone();
        assert!(other.client.break_grant("e", &holder, "stuck").await.unwrap());
        assert_eq!(run.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
        let leader = election.campaign().await.unwrap();
        one.store.partition();
        let run = tokio::spawn(async move { leader.run(|_term| pending::<()>()).await });
        world.advance(secs(20)).await;
        assert_eq!(run.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn a_candidate_that_cannot_write_its_address_does_not_lead() {
    in_world(async |world, [one]| {
        one.store.lose_next_reply(Operation::WriteNote);
        let election = one.client.election("e").unwrap().address("one:1");
        assert!(election.campaign().await.unwrap_err().is_outage());
        assert_eq!(election.leader().await.unwrap(), None);
        let long = one.client.election("e").unwrap().address([0; 4097]);
        assert_eq!(long.campaign().await.unwrap_err().kind(), ErrorKind::Config);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_leader_that_is_broken_gets_the_reason() {
    in_world(async |_, [one]| {
        let leader = one.client.election("e").unwrap().campaign().await.unwrap();
        let holder = one.client.queue("e").await.unwrap().contenders[0].clone();
        assert!(one.client.break_grant("e", &holder, "stuck").await.unwrap());
        assert_eq!(leader.must_step_down().await, Some(Loss::Broken));
    });
}
