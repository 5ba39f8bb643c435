//! The lock of the crate `zookeeper-client`, named as Curator's.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

use super::ours::TTL;
use super::workload::{Lock, Take};
use crate::crew::servers_and_parent;

#[derive(Clone)]
pub(super) struct Crate {
    client: Client,
    root: Arc<str>,
    queue: Arc<str>,
}

impl Crate {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let (servers, root) = servers_and_parent(url)?;
        let client = Client::connector().with_session_timeout(TTL).connect(servers).await?;
        Ok(Self { client, root: root.into(), queue: format!("{root}/bench").into() })
    }
}

impl Take for Crate {
    type Held = OwnedLockClient;

    async fn acquire(&self) -> Result<OwnedLockClient> {
        let prefix = LockPrefix::new_curator(&self.queue, "lock-")?;
        let parents = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents)?;
        Ok(self.client.lock(prefix, b"", options).await?.into_owned())
    }

    async fn release(&self, held: OwnedLockClient) -> Result<()> {
        self.client.delete(held.lock_path(), None).await?;
        // A dropped client would delete once more, in the background, without a sign of the end. So the client stays for ever.
        std::mem::forget(held);
        Ok(())
    }
}

impl Lock for Crate {
    fn named(&self, name: &str) -> Result<Self> {
        Ok(Self { queue: format!("{}/{name}", self.root).into(), ..self.clone() })
    }

    async fn queued(&self) -> Result<u64> {
        let stat = self.client.check_stat(&self.queue).await?.context("the queue is gone")?;
        Ok(u64::try_from(stat.num_children)?)
    }

    async fn close(self) -> Result<()> {
        // Guards that were dropped delete in the background. The session itself ends with its timeout, without nodes.
        while !self.client.list_ephemerals(&self.root).await?.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}
