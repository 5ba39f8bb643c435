-- KEYS: as for `try.lua`. ARGV: our field, our text about ourselves, the ttl, `read` or `write`. Answers as `try.lua` does.
local key, ttl, wants = KEYS[1], tonumber(ARGV[3]), ARGV[4]
local kind, mode = redis.call('TYPE', key).ok, mode_of(key)
if kind ~= 'none' and kind ~= 'hash' then
  return {2, kind}
elseif kind == 'hash' and not mode then
  return {2, 'hash of a lock that is no read-write lock'}
end
local field = wants == 'write' and ARGV[1] .. ':write' or ARGV[1]
local left = redis.call('PTTL', key)
-- An earlier try of this request may have taken it.
if mode and (mode ~= 'read' or wants ~= 'read') and redis.call('HEXISTS', key, field) == 0 then
  return {0, left}
end
local mark = holds(key, field) .. '1'
-- Commands that may fail come first, on absent keys. A server without memory refuses a script only at its first write, and no PEXPIRE; a
-- user without the rights would leave a lock without an end, or a lock that cannot be released.
redis.call('SET', mark, ARGV[2], 'XX', 'PX', ttl)
redis.call('PEXPIRE', mark, ttl)
redis.call('HDEL', key, field .. ':nothing')
redis.call('SET', mark, ARGV[2], 'PX', ttl)
redis.call('HSET', key, 'mode', wants, field, '1')
redis.call('PEXPIRE', key, math.max(left, ttl))
return {1}
