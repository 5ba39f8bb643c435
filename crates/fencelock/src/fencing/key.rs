//! Keys of Redis that no late holder writes.

/// A script for Redis that runs a command on a key, unless a later holder of the lock was there: it keeps the newest token in a key of its own.
///
/// `KEYS` are the key of the newest token and that of the command; `ARGV` are the token, the name of the command, and what follows the key in it.
/// Without a command, the token alone is kept: a new holder *claims* the key so before it reads it, and from then on no older holder
/// writes, also one that was paused in the midst of its work.
///
/// ```console
/// EVAL <script> 2 {stock}:fence {stock} 228345678901248                    a claim
/// EVAL <script> 2 {stock}:fence {stock} 228345678901248 SET 41
/// EVAL <script> 2 {stock}:fence {stock} 228345678901248 HSET left_over 41
/// ```
///
/// A token that is older than the newest one is refused with an error that begins with `FENCED`, and what is no token, as where a layout
/// has none, with one that begins with `NOTOKEN`; nothing is done then. Any client of Redis can run it, from Redis 5 on. In a cluster both keys
/// need the same hash tag, as here.
///
/// All writers go this way, by tokens of one lock. The key of the token is as safe as the key that it guards: it must neither expire nor be
/// evicted while an older holder may be at work, and what a failover of Redis forgets protects no more.
///
/// `examples/src/bin/fenced.rs` uses it.
pub const REDIS_FENCE: &str = include_str!("redis.lua");
