//! Redlock over several real servers: beside other clients, and with answers that are lost or late. With masters that are gone, slow, silent or
//! forgetful: `tests/deep/redis/redlock.rs`.

mod away;
mod late;
mod others;
mod refusals;
