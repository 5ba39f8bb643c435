-- Keeps a session alive, and every place that hangs on it. Revives none.
-- KEYS: session. ARGV: ttl in ms, then the broken grants that the client knows of.
if redis.call('PEXPIRE', KEYS[1], ARGV[1]) == 0 then return {0} end
for index = 2, #ARGV do redis.call('HDEL', KEYS[1], 'x:' .. ARGV[index]) end
local reply = { 1 }
if redis.call('HLEN', KEYS[1]) > 4 then
  local fields = redis.call('HGETALL', KEYS[1])
  for index = 1, #fields, 2 do
    if string.sub(fields[index], 1, 2) == 'x:' then
      reply[#reply + 1] = string.sub(fields[index], 3)
      reply[#reply + 1] = fields[index + 1]
    end
  end
end
return reply
