-- Prolongs a session and all its places. Revives none. Answers the broken grants, and the lost buckets: a bucket that is not
-- there, or was born after a place that the session holds in it.
-- KEYS: session, buckets. ARGV: ttl in ms, for each bucket the lowest number that the session holds there, then the broken
-- grants that the client acknowledges, the field and the number of each.
local fields = redis.call('HLEN', KEYS[1])
if fields == 0 then
  -- A replica has another server's keys, and not this session. A write makes it answer READONLY.
  local refused = redis.pcall('DEL', KEYS[1])
  if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then redis.call('DEL', KEYS[1]) end
  return {0}
end
local lost, reply, known = {}, { 1 }, {}
for index = 2, #KEYS do
  -- A key of another type is no bucket of ours.
  local born = redis.pcall('HGET', KEYS[index], '..')
  local number = type(born) == 'string' and tonumber(born)
  if not number or number > tonumber(ARGV[index]) then
    lost[#lost + 1] = index - 2
    lost[#lost + 1] = number and born or ''
  end
end
if fields > 5 then
  local acknowledged, found = {}, redis.call('HGETALL', KEYS[1])
  for index = #KEYS + 1, #ARGV, 2 do acknowledged['x:' .. ARGV[index]] = ARGV[index + 1] .. ' ' end
  for index = 1, #found, 2 do
    local number = acknowledged[found[index]]
    if number and string.sub(found[index + 1], 1, #number) == number then
      known[#known + 1] = found[index]
    -- Further broken grants follow once the client has acknowledged these.
    elseif #reply < 2000 and string.sub(found[index], 1, 2) == 'x:' then
      reply[#reply + 1] = string.sub(found[index], 3)
      reply[#reply + 1] = found[index + 1]
    end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
for _, field in ipairs(known) do redis.call('HDEL', KEYS[1], field) end
table.insert(reply, 2, lost)
return reply
