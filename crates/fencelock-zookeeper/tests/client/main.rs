//! The client against real servers, and against servers that are wrong.

mod bad_servers;
mod common;
mod multi;
mod reconnect;
mod requests;
mod tls;
mod watches;
