-- KEYS: the lock, its further key. ARGV: the beginning of our value, its rest, the ttl.
-- Answers {1} when this request holds the lock, or {1, token}; {0, milliseconds left} when another client does; {2, type} for a key that
-- is no lock of this layout; {3, why} when the counter is no number; {4, why} when it is none although this request holds the lock.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  -- First: a counter that counts nothing is an error before anything is taken.
  local token, fault = nil, nil
  if counts then
    token, fault = count(KEYS[2], true)
  end
  if fault then
    return {3, fault}
  end
  redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
  return {1, token}
elseif kind ~= 'string' then
  return {2, kind}
end
-- Reads no more of the value than ours has: another client's may be large.
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) == ARGV[1] then
  -- First: a server without memory refuses a script at its first write alone, and no PEXPIRE.
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  if not counts then
    return {1}
  end
  -- An earlier try of this request took it: that was the acquisition which the counter counted, unless it was deleted since.
  local token, fault = count(KEYS[2], false)
  if token == 0 then
    token = count(KEYS[2], true)
  end
  return fault and {4, fault} or {1, token}
end
return {0, redis.call('PTTL', KEYS[1])}
