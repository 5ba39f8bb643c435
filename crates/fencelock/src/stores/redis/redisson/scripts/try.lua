-- KEYS: the lock, the queue of its fair lock, and of a fenced lock the counter. ARGV: our field, what we say of ourselves, the ttl.
-- Answers {1} when it is ours, or {1, token}; {0, milliseconds left} when it is somebody's; {2, what} when no lock of this kind is there.
local kind, counter = other(KEYS[1]), KEYS[3]
if kind == 'none' then
  -- First what may fail, on a key that is not there: a server without memory refuses a script at its first write alone, and no PEXPIRE;
  -- a user who may not do that would leave a lock without an end; and a counter may be no counter.
  redis.call('SET', KEYS[1], '', 'XX', 'PX', ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  local token = counter and redis.call('INCR', counter) or nil
  redis.call('HSET', KEYS[1], ARGV[1], '1', 'mode', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {1, token}
elseif kind then
  return {2, kind}
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {0, redis.call('PTTL', KEYS[1])}
end
-- An earlier try of this request took it: that was the acquisition which the counter counted, unless it was deleted since.
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local token = counter and redis.call('INCRBY', counter, '0') or nil
if token == 0 then
  token = redis.call('INCR', counter)
end
return {1, token}
