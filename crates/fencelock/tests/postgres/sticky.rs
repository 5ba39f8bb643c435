//! Sticky locks on real servers.

use crate::lab::{LONG, client, database};

#[path = "../sticky/mod.rs"]
mod any;

#[tokio::test]
async fn a_sticky_lock_is_given_to_who_waits_elsewhere() {
    let (url, _) = database();
    any::is_given_to_who_waits_elsewhere(&client(&url, LONG).await, &client(&url, LONG).await).await;
}
