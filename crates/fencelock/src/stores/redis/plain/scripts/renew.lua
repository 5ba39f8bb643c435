-- KEYS: locks. ARGV: the ttl, and for each lock the beginning of our value. Answers the indices of the lost locks, from 0.
local gone = {}
for index, key in ipairs(KEYS) do
  local ours = ARGV[index + 1]
  if redis.pcall('GETRANGE', key, 0, #ours - 1) == ours then
    redis.call('PEXPIRE', key, ARGV[1])
  else
    gone[#gone + 1] = index - 1
  end
end
return gone
