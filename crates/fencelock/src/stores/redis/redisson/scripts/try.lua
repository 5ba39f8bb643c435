-- KEYS: the lock, the queue of its fair lock, and of a fenced lock the counter. ARGV: our field, our text about ourselves, the ttl.
-- Answers {1} when this request holds the lock, or {1, token}; {0, milliseconds left} when another client does; {2, kind} for a key that
-- is no lock of this layout; {3, why} when the counter is no number; {4, why} when it is none although this request holds the lock.
local kind, counter = other(KEYS[1]), KEYS[3]
local token, fault = nil, nil
if kind == 'none' then
  -- Commands that may fail come first, on an absent key. A server without memory refuses a script only at its first write, and no PEXPIRE;
  -- a user without the right to PEXPIRE would leave a lock without an end; and a counter may be no number.
  redis.call('SET', KEYS[1], '', 'XX', 'PX', ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  if counter then
    token, fault = count(counter, true)
  end
  if fault then
    return {3, fault}
  end
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
if counter then
  token, fault = count(counter, false)
end
if token == 0 then
  token = count(counter, true)
end
return fault and {4, fault} or {1, token}
