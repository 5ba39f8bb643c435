//! A ZooKeeper client made for locks.
//!
//! It does not promise that a session is alive: nobody can, and an answered ping does not mean it. It says from which moment on the session
//! timeout certainly counts ([`Client::confirmed`]); why that moment and no later one, is derived in [`sync_rule`].

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
mod handshake;
mod liveness;
mod net;
mod node;
mod outbox;
mod path;
mod proto;
mod rewatch;
mod session;
mod shared;
pub mod sync_rule;
mod tls;
mod watches;

pub use acl::{Acl, Permissions};
pub use answer::Answer;
pub use client::Client;
pub use clock::{Clock, SystemClock};
pub use config::Config;
pub use error::{Error, ErrorKind, Result};
pub use events::{Event, Events};
pub use net::{BoxFuture, Net, Stream, Tcp};
pub use node::{CreateMode, Created, Stat};
pub use shared::SessionInfo;
pub use tls::Tls;
pub use watches::{Watch, WatchEvent};
