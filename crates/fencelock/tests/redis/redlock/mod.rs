//! Redlock over several real servers: with other clients, and with replies that are lost or late. With masters that are gone, slow, silent or
//! forgetful: `tests/deep/redis/redlock.rs`.

mod away;
mod late;
mod others;
mod refusals;
