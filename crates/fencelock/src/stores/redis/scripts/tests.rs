//! The scripts on a real server.

mod bed;
mod differential;
