-- Makes our writer a reader. KEYS: as for `try.lua`. ARGV: our field, our text about ourselves, the ttl. Answers 1 for a reader, 0 for a
-- lost lock.
local key, field = KEYS[1], ARGV[1]
local hold, mode = our_hold(key, field)
if not hold or not mode then
  return 0
elseif mode == 'read' then
  return 1
end
redis.call('SET', holds(key, field) .. '1', ARGV[2], 'PX', ARGV[3])
redis.call('HDEL', key, hold)
redis.call('HSET', key, 'mode', 'read', field, '1')
redis.call('PEXPIRE', key, ARGV[3])
redis.call('DEL', holds(key, hold) .. '1')
tell_shared(key, '1')
return 1
