//! Sticky locks on real servers.

use crate::lab::{client, database};

#[path = "../sticky/mod.rs"]
mod any;

#[tokio::test]
async fn a_sticky_lock_is_given_to_who_waits_elsewhere() {
    let url = database();
    any::is_given_to_who_waits_elsewhere(&client(&url, 60_000).await, &client(&url, 60_000).await).await;
}
