-- KEYS: the lock, what belongs to it. ARGV: how our value begins, how it goes on, the ttl.
-- Answers {1} when it is ours, or {1, token}; {0, milliseconds left} when it is somebody's, {2, type} when no lock of this kind is there.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  -- First: a counter that counts nothing is an error before anything is taken.
  local token = counts and redis.call('INCR', KEYS[2]) or nil
  redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
  return {1, token}
elseif kind ~= 'string' then
  return {2, kind}
end
-- No more of it than ours has: another client's may be large.
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  -- An earlier try of this request took it: that was the acquisition which the counter counted.
  return {1, counts and tonumber(redis.call('GET', KEYS[2]) or redis.call('INCR', KEYS[2])) or nil}
end
return {0, redis.call('PTTL', KEYS[1])}
