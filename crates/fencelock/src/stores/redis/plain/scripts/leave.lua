-- KEYS: locks, each with its further key. ARGV: for each the beginning of our value. Deletes our locks, and answers how many.
local left, each = 0, #KEYS / #ARGV
for index, ours in ipairs(ARGV) do
  local at = (index - 1) * each + 1
  if redis.pcall('GETRANGE', KEYS[at], 0, #ours - 1) == ours then
    left = left + redis.call('DEL', KEYS[at])
    signal(KEYS[at + 1])
  end
end
return left
