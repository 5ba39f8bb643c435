//! The laws of a router: each name has one store, and no other.

use fencelock::ErrorKind;
use fencelock::recipes::Router;

use crate::support::{World, on_one_thread, secs};

#[test]
fn the_most_specific_pattern_decides_in_whatever_order() {
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
        assert_eq!(other.store.census().places, 0, "nobody went to the other store instead");
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
