//! The end of a parent's sequence.

use std::time::Duration;

use fencelock::ErrorKind;
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_zookeeper::CreateMode;

use crate::lab::{Lab, hands, soon};

#[tokio::test]
async fn an_exhausted_sequence_is_refused_and_nothing_is_left() {
    let server = Ensemble::start(Settings::default().with("digest.enabled", "false")).unwrap();
    let address = server.server(0).address();
    let mut lab = Lab::on(address).await;
    lab.put("job/keep", CreateMode::Persistent).await;
    lab.put("late/keep", CreateMode::Persistent).await;
    server.server(0).set_sequence(&[lab.path("job")], i32::MAX - 1).unwrap();
    server.server(0).set_sequence(&[lab.path("late")], i32::MAX - 1_000_001).unwrap();
    lab.hands = soon(hands(address)).await;
    let client = lab.client("").await;
    // Past the end, a server numbers every node 2147483647; requests in one go get numbers below zero.
    for _ in 0..4 {
        let refused = client.mutex("job").unwrap().acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
        assert!(
            refused.to_string().contains("sequence") && refused.to_string().contains(&lab.path("job")),
            "{refused}"
        );
    }
    let mutex = client.mutex("job").unwrap();
    let together =
        futures_util::future::join_all((0..20).map(|_| mutex.acquire_within(Duration::from_secs(180)))).await;
    for refused in together {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Exhausted);
    }
    assert_eq!(lab.children("job").await, ["keep"]);
    // Two more numbers can be used there.
    for _ in 0..2 {
        client.mutex("late").unwrap().acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(client.mutex("late").unwrap().acquire().await.unwrap_err().kind(), ErrorKind::Exhausted);
}
