//! The store: its sessions, and the view of queues, names and breaks for all clients.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::future;

use super::CAPABILITY;
use super::connection::Connection;
use super::dial::{Link, link};
use super::keys::QueueKey;
use super::ops::{all, delete, made_in, put};
use super::proto::{LeaseGrantRequest, PutRequest, RangeRequest, TxnRequest};
use super::session::EtcdSession;
use super::url::Config;
use crate::ask::{AskedServer, Questions};
use crate::error::Result;
use crate::kit::address::HostPort;
use crate::kit::dial::converse;
use crate::kit::record::{self, Record};
use crate::kit::served::Places;
use crate::kit::server::{Events, Server, ServerStore};
use crate::kit::tls::Tls;
use crate::name::Name;
use crate::queue::view::granted_of;
use crate::store::{Break, Capability, Contender, Grant, Opening, Page, Queue, Store, StoreUrl};
use crate::token::FencingToken;

/// The most keys that one request for names reads.
const KEYS: i64 = 1000;
/// The lifetime of a record of a break, in seconds.
const RECORD_TTL: i64 = 30 * 86_400;

/// Each question is a path, which a member answers by HTTP and without a user.
pub(super) fn ask(url: StoreUrl, questions: Questions) -> Result<Vec<AskedServer>> {
    // Without a protocol to agree on: questions are HTTP/1.0, and only connections for locks are HTTP/2.
    let tls = if url.scheme() == "etcds" { Some(Tls::from_url(&mut url.clone(), None)?) } else { None };
    let config = Config::from_url(url)?;
    let ask = |server: &HostPort| -> AskedServer {
        let (shown, server, tls) = (config.shown(server), server.clone(), tls.clone());
        let answers = async move {
            let request = |path: &&str| format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
            let answer = async |path| converse(&server, tls.as_ref(), &request(path)).await;
            Ok(future::join_all(questions.iter().map(answer)).await)
        };
        (shown, Box::pin(answers))
    };
    Ok(config.servers.iter().map(ask).collect())
}

pub(super) fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move { Ok(Arc::new(ServerStore::new(Config::from_url(url)?)) as _) })
}

impl Config {
    async fn contenders(&self, connection: &Connection, name: &Name) -> Result<Vec<QueueKey>> {
        let listed = connection.ask("queue", all(self.keys.queue(name.as_str()))).await?;
        Ok(self.keys.contenders(name, listed.kvs))
    }
}

impl Server for Arc<Config> {
    type Session = EtcdSession;
    /// The last key of a page of names; empty before the first page.
    type Listed = Vec<u8>;

    fn capability(&self) -> &Capability {
        &CAPABILITY
    }

    fn session(&self, opening: Opening, events: Events) -> Result<(Arc<EtcdSession>, Arc<Link>)> {
        let session = Arc::new(EtcdSession::new(&self.keys, opening, Places::new(events)));
        let link = link(self, Some(Arc::clone(&session)));
        Ok((session, link))
    }

    fn reader(&self) -> Arc<Link> {
        link(self, None)
    }

    async fn queue(&self, connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
        let found = self.contenders(connection, name).await?;
        let granted = granted_of(found.iter().map(|key| key.claim));
        let contender = |(at, key): (usize, &QueueKey)| Contender {
            grant: (at < granted).then(|| Grant::new(FencingToken::new(key.seq))),
            ..key.contender()
        };
        let contenders = found.iter().enumerate().map(contender).collect();
        Ok(Queue::page_of(name.clone(), contenders, page))
    }

    async fn names(
        &self,
        connection: &Connection,
        after: Vec<u8>,
        prefix: &str,
    ) -> Result<(Vec<Name>, Option<Vec<u8>>)> {
        let start = format!("{}{prefix}", self.keys.prefix).into_bytes();
        // UTF-8 has no byte 0xff. The smallest key after another one is that one and a zero byte.
        let range_end = [&*start, &[0xff]].concat();
        let key = [if after.is_empty() { start } else { after }, vec![0]].concat();
        let range = RangeRequest { key, range_end, limit: KEYS, keys_only: true, ..RangeRequest::default() };
        let listed = connection.ask("names", range).await?;
        let mut names: Vec<Name> = listed.kvs.iter().filter_map(|kv| self.keys.name(&kv.key)).collect();
        names.retain(|name| name.as_str().starts_with(prefix));
        names.dedup();
        let last = listed.kvs.into_iter().next_back().filter(|_| listed.more);
        Ok((names, last.map(|kv| kv.key)))
    }

    /// Deletes the key of a grant and writes the record, which its session watches, in one transaction.
    async fn break_grant(&self, connection: &Connection, order: &Break) -> Result<bool> {
        let (keys, place) = (&*self.keys, &order.place);
        let Some(grant) = order.token.map(FencingToken::get) else { return Ok(false) };
        let value = record::text("break", &Record::of(order))?.into_bytes();
        let found = self.contenders(connection, &place.name).await?;
        let is_meant = |key: &&QueueKey| key.seq == grant && key.contender().id == place.request;
        let Some(found) = found.iter().find(is_meant) else {
            // The same order may have been given before.
            let mut written = connection.ask("break", all(keys.own(""))).await?.kvs.into_iter();
            return Ok(written.any(|kv| kv.value == value && keys.broken(&kv).is_some_and(|it| it.place == *place)));
        };
        let lease = connection.ask("break", LeaseGrantRequest { ttl: RECORD_TTL, id: 0 }).await?.id;
        let key = keys.record(found.lease, &place.name, grant);
        let written = put(PutRequest { key, value, lease, ..PutRequest::default() });
        let (compare, success) = (vec![made_in(found.key.clone(), grant)], vec![delete(found.key.clone()), written]);
        Ok(connection.ask("break", TxnRequest { compare, success, failure: Vec::new() }).await?.succeeded)
    }

    async fn breaks(&self, connection: &Connection, name: &Name) -> Result<Vec<Break>> {
        let written = connection.ask("breaks", all(self.keys.own(""))).await?.kvs;
        let breaks = written.iter().filter_map(|kv| self.keys.broken(kv));
        Ok(breaks.filter(|broken| broken.place.name == *name).collect())
    }
}
