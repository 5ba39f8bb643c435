//! The laws of a router: each name has one store, and no other.

use fencelock::recipes::Router;
use fencelock::{ErrorKind, GuardState, Loss};

use crate::support::{World, on_one_thread, secs, settle};

#[test]
fn the_most_specific_pattern_decides_in_any_order() {
    let mut routes =
        [("**", "fast"), ("pay/**", "safe"), ("pay/*/cache", "fast"), ("pay/7/cache", "slow"), ("pay", "own")];
    for _ in 0..routes.len() {
        routes.rotate_left(1);
        let router = Router::new(routes).unwrap();
        for (name, store) in [
            ("stock", "fast"),
            ("pay/7", "safe"),
            ("pay/7/x/y", "safe"),
            ("pay/8/cache", "fast"),
            ("pay/7/cache", "slow"),
            ("pay", "own"),
            ("payroll", "fast"),
        ] {
            assert_eq!(*router.route(name).unwrap(), store, "{name}");
        }
    }
}

#[test]
fn patterns_that_leave_the_store_open_are_refused() {
    for (patterns, said) in [
        (&[][..], "no pattern is given"),
        (&["a/*", "*/b"], "neither is more specific"),
        (&["a/**", "*/b"], "neither is more specific"),
        (&["a", "b", "a"], "given twice"),
        (&["a*"], "whole part"),
        (&["**/a"], "last part"),
        (&["a/../b"], "segment"),
    ] {
        let error = Router::new(patterns.iter().map(|pattern| (pattern, ()))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(said), "{error}");
    }
    let many = |count: usize| Router::new((0..count).map(|n| (format!("n{n}"), ())));
    assert!(many(1000).is_ok() && many(1001).unwrap_err().to_string().contains("more than 1000 patterns"));
    assert!(Router::new([("a/*", 1), ("b/*", 2), ("**", 3)]).is_ok());
}

#[test]
fn a_name_without_a_pattern_has_no_store() {
    let router = Router::new([("pay/**", "redis://me:s3cret@host")]).unwrap();
    let error = router.route("stock").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("name stock") && error.to_string().contains("`**` matches every name"),
        "{error}"
    );
    assert_eq!(router.route("a//b").unwrap_err().kind(), ErrorKind::InvalidName);
    assert!(!format!("{router:?}").contains("s3cret"));
}

#[test]
fn locks_of_every_kind_are_taken_in_the_store_of_their_name_and_in_no_other() {
    on_one_thread(async {
        let (one, other) = (World::new(), World::new());
        let (safe, fast) = (one.process().await.client, other.process().await.client);
        let router = Router::new([("pay/**", safe.clone()), ("**", fast.clone())]).unwrap();
        let places = || (one.store.census().places, other.store.census().places);
        let guard = router.mutex("pay/7").unwrap().acquire().await.unwrap();
        assert_eq!(places(), (1, 0));
        let reader = router.rwlock("page").unwrap().read().await.unwrap();
        let permit = router.semaphore("seats", 3).unwrap().acquire().await.unwrap();
        assert_eq!(places(), (1, 2));
        drop((guard, reader, permit));
        let both = router.multi_lock(["stock", "pay/7"]).unwrap().acquire().await.unwrap();
        assert_eq!(places(), (1, 1));
        assert_eq!(router.multi_lock(["stock", "stock"]).unwrap_err().kind(), ErrorKind::Config);
        both.release().await.unwrap();
        one.assert_no_place_is_left().await;
        other.assert_no_place_is_left().await;
    });
}

#[test]
fn names_of_a_store_that_is_away_fail_and_the_others_do_not_notice() {
    on_one_thread(async {
        let (one, other) = (World::new(), World::new());
        let (safe, fast) = (one.process().await, other.process().await);
        let router = Router::new([("pay/**", safe.client.clone()), ("**", fast.client.clone())]).unwrap();
        safe.store.partition();
        let lock = router.mutex("pay/7").unwrap();
        let wait = tokio::spawn(async move { lock.acquire_within(secs(20)).await });
        router.mutex("stock").unwrap().acquire().await.unwrap().release().await.unwrap();
        one.advance(secs(60)).await;
        assert!(wait.await.unwrap().unwrap_err().is_outage());
        assert_eq!(other.store.census().places, 0, "no acquire went to the other store instead");
    });
}

#[test]
fn one_client_is_made_for_each_url_and_a_wrong_url_names_its_pattern() {
    on_one_thread(async {
        let urls = [("a", "memory:routed-1"), ("b", "memory:routed-2"), ("c", "memory:routed-1")];
        let router = Router::new(urls).unwrap().connect(fencelock::Client::builder).await.unwrap();
        let owner = |name: &str| router.route(name).unwrap().owner().clone();
        assert!(owner("a") == owner("c") && owner("a") != owner("b"));
        let wrong = Router::new([("a", "memory:x"), ("b/**", "nothing://x")]).unwrap();
        let error = wrong.connect(fencelock::Client::builder).await.unwrap_err();
        assert!(error.to_string().contains("pattern b/**"), "{error}");
    });
}

/// The old and the new store of a move, and a router that holds both, with clients of its own.
async fn move_of_all(old: &World, new: &World) -> Router {
    let router = Router::new([("**", old.process().await.client)]).unwrap();
    router.migrate("**", new.process().await.client).unwrap()
}

#[test]
fn during_a_move_clients_of_one_store_and_of_both_exclude_each_other() {
    on_one_thread(async {
        let (old, new) = (World::new(), World::new());
        let router = move_of_all(&old, &new).await;
        // A client that still uses the old configuration, and a client that has finished the move.
        let (before, after) = (old.process().await.client, new.process().await.client);
        let both = router.multi_lock(["b", "a"]).unwrap();
        for one_store in [&before, &after] {
            let held = both.acquire().await.unwrap();
            assert_eq!(one_store.mutex("a").unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
            held.release().await.unwrap();
            let held = one_store.mutex("b").unwrap().acquire().await.unwrap();
            assert_eq!(both.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
            assert_eq!(both.acquire_within(secs(0)).await.unwrap_err().kind(), ErrorKind::TimedOut);
            let left = old.store.census().places + new.store.census().places;
            assert_eq!(left, 1, "what was taken is given back");
            held.release().await.unwrap();
        }
        let (held, again) = (both.acquire().await.unwrap(), move_of_all(&old, &new).await);
        assert_eq!(again.multi_lock(["a"]).unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
        let names: Vec<_> = held.guards().iter().map(|guard| guard.name().as_str()).collect();
        assert_eq!(names, ["a", "a", "b", "b"]);
        let token = |client: &fencelock::Client| {
            let client = client.clone();
            async move { client.contention("a").await.unwrap().holder.unwrap().grant.unwrap().token }
        };
        assert_eq!((held.guards()[0].token(), held.guards()[1].token()), (token(&before).await, token(&after).await));
        assert_eq!(held.token("a"), token(&after).await, "the token is the new store's");
        held.release().await.unwrap();
        old.assert_no_place_is_left().await;
        new.assert_no_place_is_left().await;
    });
}

#[test]
fn a_move_waits_in_the_old_store_first_and_one_limit_counts_for_both() {
    on_one_thread(async {
        let (old, new) = (World::new(), World::new());
        let router = move_of_all(&old, &new).await;
        let (before, after) = (old.process().await.client, new.process().await.client);
        let wait = || {
            let both = router.multi_lock(["a"]).unwrap();
            tokio::spawn(async move { both.acquire_within(secs(5)).await })
        };
        let held = before.mutex("a").unwrap().acquire().await.unwrap();
        let waiting = wait();
        settle().await;
        assert_eq!((old.store.census().places, new.store.census().places), (2, 0), "it waits for the old one alone");
        let rival = after.mutex("a").unwrap().acquire().await.unwrap();
        held.release().await.unwrap();
        settle().await;
        assert_eq!((old.store.census().places, new.store.census().places), (1, 2), "it holds the old one meanwhile");
        new.advance(secs(6)).await;
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        old.assert_no_place_is_left().await;
        rival.release().await.unwrap();
        let held = wait().await.unwrap().unwrap();
        // The loss of either is the loss of both.
        let holder = after.contention("a").await.unwrap().holder.unwrap();
        assert!(after.break_grant("a", &holder, "stuck").await.unwrap());
        assert_eq!(held.lost().await, Loss::Broken);
        assert!(matches!(held.state(), GuardState::Lost(_)) && held.check().is_err());
        assert_eq!(before.mutex("a").unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
        drop(held);
        old.assert_no_place_is_left().await;
    });
}

#[test]
fn a_name_that_moves_is_refused_in_one_store_alone() {
    on_one_thread(async {
        let (old, new) = (World::new(), World::new());
        let router = Router::new([("pay/**", old.process().await.client), ("**", old.process().await.client)]).unwrap();
        let router = router.migrate("pay/**", new.process().await.client).unwrap();
        assert_eq!((router.stores("pay/7").unwrap().len(), router.stores("stock").unwrap().len()), (2, 1));
        for error in [
            router.route("pay/7").unwrap_err(),
            router.mutex("pay/7").unwrap_err(),
            router.rwlock("pay/7").unwrap_err(),
            router.semaphore("pay/7", 3).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("moves") && error.to_string().contains("multi_lock"), "{error}");
        }
        let some_move = router.multi_lock(["stock", "pay/7"]).unwrap().acquire().await.unwrap();
        assert_eq!((some_move.guards().len(), new.store.census().places), (3, 1));
    });
    on_one_thread(async {
        let urls = || Router::new([("pay/**", "memory:moved-1"), ("**", "memory:moved-2")]).unwrap();
        for (pattern, said) in [("pay/*", "one of the router's"), ("a**", "one of the router's")] {
            let error = urls().migrate(pattern, "memory:moved-3").unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains(said), "{error}");
        }
        let twice = urls().migrate("**", "memory:moved-3").unwrap().migrate("**", "memory:moved-3").unwrap_err();
        assert!(twice.to_string().contains("moved twice"), "{twice}");
        // Its caller would wait for itself.
        let nowhere = urls().migrate("**", "memory:moved-2").unwrap();
        let error = nowhere.connect(fencelock::Client::builder).await.unwrap_err();
        assert!(error.to_string().contains("have already") && error.to_string().contains("pattern **"), "{error}");
        let client = fencelock::Client::connect("memory:moved-2").await.unwrap();
        let nowhere = Router::new([("**", client.clone())]).unwrap().migrate("**", client).unwrap();
        assert_eq!(nowhere.multi_lock(["a"]).unwrap_err().kind(), ErrorKind::Config);
    });
}
