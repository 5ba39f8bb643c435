-- KEYS: locks. ARGV: the ttl, and for each lock how our value begins. Answers which of them are not ours any more, from 0.
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
