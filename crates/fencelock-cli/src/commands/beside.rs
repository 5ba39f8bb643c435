//! While a command runs: whether locks of other clients under the same name can be held at the same time.

use std::time::Duration;

use fencelock::{Client, Name, Page, Waits};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::output::say;
use crate::show::ShownBeside;

/// How often the queue is looked at while the command runs: a contender that does not wait for us can come at any time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// How long the looks may delay the release after the command has ended.
const LAST_LOOK: Duration = Duration::from_millis(500);

/// Looks at the queue beside the command, and once more before the lock is given back.
pub(super) struct Beside {
    command_ended: oneshot::Sender<()>,
    looking: JoinHandle<()>,
}

impl Beside {
    /// Says from now on, once for each kind, which locks of another client can be held beside `names`.
    ///
    /// A look costs a few requests. A store whose layout nobody else has is not asked.
    pub(super) fn look_for(client: &Client, names: &[Name]) -> Self {
        let (command_ended, is_ended) = oneshot::channel();
        let mut look = Look { client: client.clone(), names: names.to_vec(), said: Vec::new() };
        let looking = tokio::spawn(async move { look.until(is_ended).await });
        Self { command_ended, looking }
    }

    /// The command has ended and the lock is still held: finishes the look that is under way, and looks once more.
    pub(super) async fn finish(mut self) {
        let _ = self.command_ended.send(());
        if timeout(LAST_LOOK, &mut self.looking).await.is_err() {
            self.looking.abort();
        }
    }
}

struct Look {
    client: Client,
    names: Vec<Name>,
    /// What was said already.
    said: Vec<(&'static str, Waits)>,
}

impl Look {
    async fn until(&mut self, mut is_ended: oneshot::Receiver<()>) {
        if self.client.capability().excludes.is_empty() {
            return;
        }
        let mut is_last = false;
        loop {
            self.look().await;
            if is_last {
                return;
            }
            // A look that was under way when the command ended says nothing of a contender that came after its answer.
            is_last = timeout(LOOK_AGAIN, &mut is_ended).await.is_ok();
        }
    }

    /// What cannot be read now is read later; the lock itself is told of elsewhere.
    async fn look(&mut self) {
        for name in &self.names {
            let Ok(queue) = self.client.queue_page(name, Page { skip: 0, limit: 1 }).await else { continue };
            for (found, shown) in queue.beside.iter().zip(ShownBeside::all(&queue)) {
                if !self.said.contains(&(found.what, found.waits)) {
                    self.said.push((found.what, found.waits));
                    say(shown.warning(name.as_str()));
                }
            }
        }
    }
}
