-- Runs a command, unless this token is older than one that was seen; without a command it only refuses older ones from now on.
-- KEYS: where the newest token is kept, the key of the command. ARGV: token, and then the command's name and what follows its key.
local token = ARGV[1] or ''
if token ~= '0' and not string.match(token, '^[1-9]%d*$') then
  return redis.error_reply('NOTOKEN there is no fencing token to compare')
end
-- As text: numbers of Lua are exact up to 2^53 only.
local seen = redis.call('GET', KEYS[1]) or ''
if #seen > #token or (#seen == #token and seen > token) then
  return redis.error_reply('FENCED a later holder of the lock was here with the token ' .. seen)
end
if seen ~= token then redis.call('SET', KEYS[1], token) end
if not ARGV[2] then return redis.status_reply('OK') end
return redis.call(ARGV[2], KEYS[2], unpack(ARGV, 3))
