//! A ZooKeeper client made for locks.
//!
//! The client does not promise that a session is alive: no client can, and an answered ping does not mean it. The client says from which
//! moment on the session timeout certainly counts ([`Client::confirmed`]); why that moment and no later one is derived in [`sync_rule`].
//!
//! ```no_run
//! use fencelock_zookeeper::{Acl, Client, Config, CreateMode, WatchEvent};
//!
//! # async fn contend() -> fencelock_zookeeper::Result<()> {
//! let (client, _events) = Client::connect(Config::new("zk1,zk2,zk3/app")?).await?;
//! // Both are in line when the calls return, and travel together; only the awaiting takes time.
//! let created = client.create("/job/lock-", b"", CreateMode::EphemeralSequential, &[Acl::open()]);
//! let listed = client.get_children("/job");
//! let (mine, (mut children, _)) = (created.await?, listed.await?);
//! children.sort();
//! if let Some(before) = children.iter().rev().find(|child| format!("/job/{child}") < mine.path) {
//!     let (_, _, mut watch) = client.get_data_watched(&format!("/job/{before}")).await?;
//!     assert_eq!(watch.fired().await, WatchEvent::Deleted);
//! }
//! client.close().await
//! # }
//! ```
//!
//! # Scope
//!
//! - **Sessions** are continued on any of the servers: names are resolved anew, servers dialled side by side in random order, a moment
//!   apart, with pauses that grow and differ from client to client. A server that owes an answer and is silent for an eighth of the session
//!   timeout is left for another. A session answered with another one has expired: [`Event::Expired`]. A server that sends something and no
//!   whole answer is left, too.
//! - **Requests** go out in the order of their calls, many in one write, each with a deadline ([`Config::request_deadline`]). None is ever sent
//!   twice. [`Error::outcome_unknown`] says whether one that failed may have taken effect.
//! - **Watches** receive one event, across reconnects ([`Watch`]).
//! - **Several operations at once**, all of them or none: [`Client::multi`].
//! - **Read-only servers** are refused: they do not see the other sessions' locks.
//! - **Limits**: frames are measured before they are sent ([`Config::max_frame`]), and before there is room made for what comes ([`Config::max_answer`]).
//! - There are no nodes with a time to live, no persistent watches, no SASL, and no reconfiguration: locks need none of them.
//!
//! # Limits and versions
//!
//! ZooKeeper 3.5 or newer. Rust 1.88 or newer; that is raised with a minor release. The feature `tls`, on by default, is for encrypted connections. All settings have units, ranges and relations, which
//! [`Client::connect`] checks: [`Config`].

#![cfg_attr(docsrs, feature(doc_cfg))]

/// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod acl;
mod answer;
mod client;
mod clock;
mod config;
mod connect_string;
mod connection;
mod conversation;
mod dial;
mod error;
mod events;
mod frames;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod liveness;
mod lock_node;
mod multi;
mod net;
mod node;
mod outbox;
mod path;
mod proto;
mod race;
mod rewatch;
mod session;
mod shared;
pub mod sync_rule;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
mod watches;

pub use acl::{Acl, Permissions};
pub use answer::Answer;
pub use client::Client;
pub use clock::{Clock, SystemClock};
pub use config::{AskCredentials, Config};
pub use error::{Error, ErrorKind, Result};
pub use events::{Event, Events};
pub use multi::{Done, Operation};
pub use net::{BoxFuture, Net, Stream, Tcp};
pub use node::{CreateMode, Created, Stat};
pub use shared::SessionInfo;
pub use tls::Tls;
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
pub use watches::{Watch, WatchEvent};
