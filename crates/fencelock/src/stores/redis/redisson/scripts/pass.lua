-- Releases a lock, and takes it for the next one in the line of the same session, unless somebody else hears of the release and so waits.
-- KEYS: as for `try.lua`. ARGV: our field, the next one's field, what the next one says of itself, the ttl, how many of those who hear are
-- of this session.
-- Answers {how many were there}, and 1 behind it if the next one has the lock, and behind that its token.
if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then
  return {0}
end
redis.call('DEL', KEYS[1])
if tell(KEYS[2]) > tonumber(ARGV[5]) then
  return {1}
end
local token = KEYS[3] and redis.pcall('INCR', KEYS[3]) or nil
if type(token) == 'table' then
  -- The counter counts nothing any more. The next try says so.
  return {1}
end
redis.call('HSET', KEYS[1], ARGV[2], '1', 'mode', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, 1, token}
