-- Opens a session, or again one whose answer was lost.
-- KEYS: session, layout. ARGV: version, ttl in ms, host, pid, client.
local version = redis.call('GET', KEYS[2])
if version and version ~= ARGV[1] then return {'layout', version} end
local epoch = string.format('%.0f', (redis.call('HGET', KEYS[1], 'epoch') or 0) + 1)
-- Removes nothing: after such a command the server takes the few bytes of a session although its memory is used up. Else
-- nobody could connect then to see or to break what is there.
redis.call('HDEL', KEYS[1], '')
if not version then redis.call('SET', KEYS[2], ARGV[1]) end
redis.call('HSET', KEYS[1], 'epoch', epoch, 'host', ARGV[3], 'pid', ARGV[4], 'client', ARGV[5], 'ttl', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'opened', epoch}
