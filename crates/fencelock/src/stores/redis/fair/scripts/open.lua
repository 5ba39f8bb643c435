-- Opens a session, or opens it again after a lost answer.
-- KEYS: session, layout, and of a bucket without a name: bucket, order, breaks. ARGV: version, ttl in ms, host, pid, client.
local version = redis.call('GET', KEYS[2])
if version and version ~= ARGV[1] then return {'layout', version} end
-- No script may stop half-way at a command that this user may not run. The calls here change nothing: these keys are empty,
-- and the layout key is of another type. Refusals for other reasons say nothing of the user.
local function is_denied(command, ...)
  local answer = redis.pcall(command, ...)
  local said = type(answer) == 'table' and answer.err or ''
  local function says(words) return string.find(said, words, 1, true) end
  if says('nknown Redis command') or says('nknown command') then return redis.error_reply('ERR unknown command ' .. command) end
  if says('NOPERM') or says('ACL failure') or says('user executing the script') then
    return redis.error_reply('NOPERM ' .. command .. ': ' .. said)
  end
end
local denied = is_denied('DEL', KEYS[4]) or is_denied('HDEL', KEYS[3], '') or is_denied('ZREM', KEYS[4], '')
  or is_denied('ZADD', KEYS[4], 'XX', '0', '') or is_denied('LTRIM', KEYS[5], '0', '-1') or is_denied('PEXPIRE', KEYS[5], '1')
  or is_denied('PUBLISH', KEYS[1], '')
-- A refused command that only reads could keep a lock from its release.
  or is_denied('ZRANGE', KEYS[4], '0', '0') or is_denied('ZRANK', KEYS[4], '') or is_denied('ZCOUNT', KEYS[4], '0', '0')
  or is_denied('ZCARD', KEYS[4]) or is_denied('PTTL', KEYS[4]) or is_denied('EXISTS', KEYS[4]) or is_denied('HMGET', KEYS[3], '')
  or is_denied('HLEN', KEYS[3]) or is_denied('HGETALL', KEYS[3]) or is_denied('HSCAN', KEYS[3], '0')
if denied then return denied end
local epoch = string.format('%.0f', (redis.call('HGET', KEYS[1], 'epoch') or 0) + 1)
-- Removes nothing: after such a command the server takes the few bytes of a session although its memory is used up. Otherwise
-- no client could connect then to look at locks or to break a grant.
redis.call('HDEL', KEYS[1], '')
if not version then redis.call('SET', KEYS[2], ARGV[1]) end
denied = is_denied('SET', KEYS[2], ARGV[1], 'NX') or is_denied('HSET', KEYS[2], '', '') or is_denied('HINCRBY', KEYS[2], '', '1') or is_denied('RPUSH', KEYS[2], '')
if denied then return denied end
redis.call('HSET', KEYS[1], 'epoch', epoch, 'host', ARGV[3], 'pid', ARGV[4], 'client', ARGV[5], 'ttl', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'opened', epoch}
