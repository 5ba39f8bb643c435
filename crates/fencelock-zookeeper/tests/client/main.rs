//! The client against real servers, and against faulty ones.

mod bad_servers;
mod common;
mod multi;
mod reconnect;
mod requests;
mod tls;
mod watches;
