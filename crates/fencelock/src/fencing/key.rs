//! Keys of Redis that late holders cannot write.

/// A Lua script that runs a command on a key of Redis, unless a later holder of the lock has used the key. Another key keeps the newest token.
///
/// `KEYS` are the key of the newest token and that of the command; `ARGV` are the token, the name of the command, and what follows the key
/// in it. Without a command, the script only keeps the token: a new holder *claims* the key so before it reads it. From then on no older
/// holder writes, not even after a pause in the middle of its work.
///
/// ```console
/// EVAL <script> 2 {stock}:fence {stock} 228345678901248                    a claim
/// EVAL <script> 2 {stock}:fence {stock} 228345678901248 SET 41
/// EVAL <script> 2 {stock}:fence {stock} 228345678901248 HSET left_over 41
/// ```
///
/// A token that is older than the newest one is refused with an error that begins with `FENCED`, and a missing or malformed token with an
/// error that begins with `NOTOKEN`; the script changes nothing then. Any client of Redis 5 or newer can run it. In a cluster both keys
/// need the same hash tag, as here.
///
/// All writers must use the script, with tokens of one lock. The key of the token must neither expire nor be evicted while an older holder
/// may be at work. A failover of Redis that loses the key loses the protection.
///
/// `examples/src/bin/fenced.rs` uses it.
pub const REDIS_FENCE: &str = include_str!("redis.lua");
