//! The floor of `zk:`: the requests that every lock needs, on the same client, connection and thread as the store's.
//!
//! Nodes have names and data as long as the store's. A waiter finds the waiter ahead of it by the number alone, since each one here stays
//! until it had the lock: the floor looks for nothing, compares nothing, and notifies no observer.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use fencelock_zookeeper::{Acl, Answer, Client, Config, CreateMode, Created, ErrorKind, Stat};

use super::ours::TTL;
use super::workload::{Lock, Take};
use crate::crew::servers_and_parent;

/// A name as the store gives its nodes, the same for all contenders: the search is shorter.
const NODE: &str = "_c_a0000000-0000-0005-0123-456789abcdef-lock-";
/// The data of a node: as many bytes as the store writes about an owner.
const NOTE: &[u8] = br#"{"fencelock":1,"client":"0123456789abcdef","host":"bench","pid":12345,"claim":"mutex"}"#;

#[derive(Clone)]
pub(super) struct Floor {
    client: Client,
    root: Arc<str>,
    /// The parent of all nodes of the queue.
    queue: Arc<str>,
    listed: bool,
}

impl Floor {
    pub(super) async fn connect(url: &str, listed: bool) -> Result<Self> {
        let (servers, root) = servers_and_parent(url)?;
        let config = Config::new(servers)?.session_timeout(TTL).request_deadline(TTL / 3);
        let (client, _events) = Client::connect(config).await?;
        let floor = Self { client, root: root.into(), queue: format!("{root}/bench").into(), listed };
        floor.make(root).await?;
        floor.prepare().await?;
        Ok(floor)
    }

    async fn make(&self, path: &str) -> Result<()> {
        match self.client.create(path, b"", CreateMode::Container, &[Acl::open()]).await {
            Err(fault) if fault.kind() != ErrorKind::NodeExists => Err(fault.into()),
            _ => Ok(()),
        }
    }

    fn create(&self) -> Answer<Created> {
        let path = format!("{}/{NODE}", self.queue);
        self.client.create(&path, NOTE, CreateMode::EphemeralSequential, &[Acl::open()])
    }

    fn list(&self) -> Option<Answer<(Vec<String>, Stat)>> {
        self.listed.then(|| self.client.get_children(&self.queue))
    }

    /// Waits until the node of that number is gone.
    async fn gone(&self, number: i64) -> Result<()> {
        let path = format!("{}/{NODE}{number:010}", self.queue);
        match self.client.get_data_watched(&path).await {
            Ok((_, _, mut watch)) => drop(watch.fired().await),
            // The node was gone already.
            Err(fault) if fault.kind() == ErrorKind::NoNode => return Ok(()),
            Err(fault) => return Err(fault.into()),
        }
        if let Some(listed) = self.list() {
            listed.await?;
        }
        Ok(())
    }
}

impl Take for Floor {
    type Held = String;

    async fn acquire(&self) -> Result<String> {
        let Created { path, .. } = self.create().await?;
        let number = path.rsplit_once('-').and_then(|(_, number)| number.parse::<i64>().ok());
        match number.context("a node without a number")? {
            0 => {}
            number => self.gone(number - 1).await?,
        }
        Ok(path)
    }

    async fn release(&self, held: String) -> Result<()> {
        Ok(self.client.delete(&held, None).await?)
    }
}

impl Lock for Floor {
    fn named(&self, name: &str) -> Result<Self> {
        Ok(Self { queue: format!("{}/{name}", self.root).into(), ..self.clone() })
    }

    async fn acquire_free(&self) -> Result<String> {
        // Both requests are sent before the wait for an answer.
        let (created, listed) = (self.create(), self.list());
        let Created { path, .. } = created.await?;
        if let Some(listed) = listed {
            listed.await?;
        }
        Ok(path)
    }

    async fn queued(&self) -> Result<u64> {
        let stat = self.client.exists(&self.queue).await?.context("the queue is gone")?;
        Ok(u64::try_from(stat.num_children)?)
    }

    async fn prepare(&self) -> Result<()> {
        self.make(&self.queue).await
    }

    async fn close(self) -> Result<()> {
        Ok(self.client.close().await?)
    }
}
