//! The laws of windows, and of values that are made once.

use std::cell::Cell;

use fencelock::memory::Operation;
use fencelock::recipes::Passage;
use fencelock::{Client, Error, ErrorKind, Outcome};
use futures_util::future::join_all;

use crate::support::{in_world, ms, secs, settle};

#[test]
fn a_window_lets_a_single_caller_in_until_its_end_although_the_first_is_gone() {
    in_world(async |world, [one, other]| {
        let window = |client: &Client| client.window("order/1", secs(5)).unwrap();
        let Passage::First { token } = window(&one.client).pass().await.unwrap() else { panic!("not the first") };
        let owner = one.client.owner().clone();
        one.store.crash();
        world.advance(secs(2)).await;
        let Passage::Refused { first, ago, left, .. } = window(&other.client).pass().await.unwrap() else {
            panic!("it is closed")
        };
        assert_eq!((first, ago, left), (owner, secs(2), secs(3)));
        world.advance(ms(2_999)).await;
        assert!(matches!(window(&other.client).pass().await.unwrap(), Passage::Refused { .. }));
        world.advance(ms(1)).await;
        let Passage::First { token: later } = window(&other.client).pass().await.unwrap() else { panic!("refused") };
        assert!(later > token);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn of_many_concurrent_requests_one_is_let_in() {
    in_world(async |world, []| {
        let mut processes = Vec::new();
        for _ in 0..20 {
            processes.push(world.process().await);
        }
        let asked = processes
            .iter()
            .map(|process| async { process.client.window("order/1", secs(5)).unwrap().pass().await.unwrap() });
        let passed = join_all(asked).await;
        assert_eq!(passed.iter().filter(|passage| matches!(passage, Passage::First { .. })).count(), 1);
        let window = processes[0].client.window("order/2", secs(5)).unwrap();
        processes[0].store.lose_next_reply(Operation::WriteNote);
        assert_eq!(window.pass().await.unwrap_err().outcome(), Outcome::Unknown);
        assert!(matches!(window.pass().await.unwrap(), Passage::Refused { .. }), "it was let in after all");
    });
}

#[test]
fn something_is_made_once_and_again_for_another_version() {
    in_world(async |world, []| {
        let mut processes = Vec::new();
        for _ in 0..20 {
            processes.push(world.process().await);
        }
        let made = Cell::new(0);
        for (version, times) in [("v1", 1), ("v2", 2), ("v2", 2)] {
            let got = processes.iter().map(|process| async {
                let once = process.client.once("cache", version).unwrap();
                let make = async || {
                    made.set(made.get() + 1);
                    settle().await;
                    Ok::<_, Error>(format!("made for {version}\n").into_bytes())
                };
                once.get_or_make(make).await.unwrap()
            });
            let got = join_all(got).await;
            assert!(got.iter().all(|value| **value == *format!("made for {version}\n").as_bytes()));
            assert_eq!(made.get(), times);
        }
        assert_eq!(processes[0].client.once("cache", "v").unwrap().get().await.unwrap(), None);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_caller_that_fails_to_make_the_value_keeps_nothing_and_the_next_one_tries() {
    in_world(async |world, []| {
        let (one, other) = (world.process().await.client, world.process().await.client);
        let (one, other) = (one.once("cache", "v1").unwrap(), other.once("cache", "v1").unwrap());
        let fails = one.get_or_make(async || {
            settle().await;
            Err(Error::new(ErrorKind::Config, "make", "no"))
        });
        let makes = other.get_or_make(async || Ok::<_, Error>(b"yes".to_vec()));
        let (failed, made) = tokio::join!(fails, makes);
        assert_eq!((failed.unwrap_err().operation(), &*made.unwrap()), ("make", &b"yes"[..]));
        assert_eq!(&*one.get().await.unwrap().unwrap(), b"yes");
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_maker_that_loses_the_lock_stops_before_the_next_one_begins() {
    in_world(async |world, []| {
        let (one, other) = (world.process().await.client, world.process().await.client);
        let (first, next) = (one.once("cache", "v1").unwrap(), other.once("cache", "v1").unwrap());
        let made_at_once = Cell::new(0);
        let make = async |forever: bool| {
            made_at_once.set(made_at_once.get() + 1);
            let _down = Down(&made_at_once);
            assert_eq!(made_at_once.get(), 1);
            settle().await;
            if forever {
                std::future::pending::<()>().await;
            }
            Ok::<_, Error>(b"made".to_vec())
        };
        let breaks = async {
            settle().await;
            let name = fencelock::Name::new("cache").unwrap();
            let front = other.queue(&name).await.unwrap().contenders[0].clone();
            assert!(other.break_grant(&name, &front, "for the test").await.unwrap());
            settle().await;
            next.get_or_make(|| make(false)).await.unwrap()
        };
        let (lost, made) = tokio::join!(first.get_or_make(|| make(true)), breaks);
        assert_eq!((lost.unwrap_err().kind(), &*made), (ErrorKind::Lost, &b"made"[..]));
    });
}

struct Down<'a>(&'a Cell<usize>);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn a_value_that_is_too_long_is_refused() {
    in_world(async |world, []| {
        let client = world.process().await.client;
        for length in [secs(0), secs(u64::MAX)] {
            assert_eq!(client.window("a", length).unwrap_err().kind(), ErrorKind::Config);
        }
        for version in ["", "a\nb", &"v".repeat(129)] {
            assert_eq!(client.once("a", version).unwrap_err().kind(), ErrorKind::Config);
        }
        let once = client.once("a", &"v".repeat(128)).unwrap();
        let of = |bytes: usize| once.get_or_make(async move || Ok::<_, Error>(vec![7; bytes]));
        assert_eq!(of(fencelock::recipes::Once::MAX_VALUE + 1).await.unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(of(fencelock::recipes::Once::MAX_VALUE).await.unwrap().len(), fencelock::recipes::Once::MAX_VALUE);
    });
}
