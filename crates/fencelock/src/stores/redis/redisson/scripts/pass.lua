-- Releases a lock, and takes it for the next place in the line of the same session, unless another client receives the release, and so
-- waits. KEYS: as for `try.lua`. ARGV: our field, the next place's field, its text about itself, the ttl, the number of this session's
-- subscriptions. Answers {how many locks were there}, then 1 if the next place has the lock, then its token.
if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then
  return {0}
end
redis.call('DEL', KEYS[1])
if tell(KEYS[2]) > tonumber(ARGV[5]) then
  return {1}
end
local token = KEYS[3] and redis.pcall('INCR', KEYS[3]) or nil
if type(token) == 'table' then
  -- The counter is no number any more. The next try reports that.
  return {1}
end
redis.call('HSET', KEYS[1], ARGV[2], '1', 'mode', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, 1, token}
