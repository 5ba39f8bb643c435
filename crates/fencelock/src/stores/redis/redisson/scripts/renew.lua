-- KEYS: locks. ARGV: the ttl, and for each lock our field. Answers the indices of the lost locks, from 0.
local gone, ttl = {}, tonumber(ARGV[1])
for index, key in ipairs(KEYS) do
  local hold, mode = our_hold(key, ARGV[index + 1])
  local marked = hold and mode and redis.call('PEXPIRE', holds(key, hold) .. '1', ttl) == 1
  if hold and (marked or mode ~= 'read') then
    redis.call('PEXPIRE', key, mode == 'read' and math.max(redis.call('PTTL', key), ttl) or ttl)
  else
    gone[#gone + 1] = index - 1
    if hold then
      -- The hold has expired, and only others keep the hash: their releases must not wait for our field.
      let_go(key, mode, hold)
    end
  end
end
return gone
