//! While a command runs: whether locks of other clients under the same name can be held at the same time.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use fencelock::{Client, Name, Page};
use tokio::time::sleep;

use crate::say::say;
use crate::show::ShownBeside;

/// How often somebody may have come who does not wait for us.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Says once for each kind of lock of another client that can be held beside `name`; never completes.
///
/// A look costs a few requests beside the command and delays nothing. A store whose layout nobody else has is not asked.
pub(super) async fn say_who_is_beside(client: &Client, name: &Name) -> Infallible {
    if client.capability().excludes.is_empty() {
        return pending().await;
    }
    let mut said = Vec::new();
    loop {
        // What cannot be read now is read later; the lock itself is told of elsewhere.
        if let Ok(queue) = client.queue_page(name, Page { skip: 0, limit: 1 }).await {
            for (found, shown) in queue.beside.iter().zip(ShownBeside::all(&queue)) {
                if !said.contains(&(found.what, found.waits)) {
                    said.push((found.what, found.waits));
                    say(shown.warning(name.as_str()));
                }
            }
        }
        sleep(LOOK_AGAIN).await;
    }
}
