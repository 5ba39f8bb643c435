//! A lock that another program holds, on any store.

use std::time::Duration;

use fencelock::{Client, ErrorKind};

/// Tries until a refusal names the holder. A refusal comes without the holder's name when the store takes longer than a tenth of a second to say it.
pub(crate) async fn until_refused_by(holder: &str, client: &Client, name: &str) {
    let mutex = client.mutex(name).unwrap();
    let named = async {
        loop {
            let refused = mutex.try_acquire().await.expect_err("another program holds the lock");
            assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
            if refused.to_string().contains(holder) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(180), named).await.expect("a refusal names the holder");
}
