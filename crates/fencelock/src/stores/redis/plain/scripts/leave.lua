-- KEYS: locks, each with what belongs to it. ARGV: for each how our value begins. Deletes those that are ours, and says how many.
local left, each = 0, #KEYS / #ARGV
for index, ours in ipairs(ARGV) do
  local at = (index - 1) * each + 1
  if redis.pcall('GETRANGE', KEYS[at], 0, #ours - 1) == ours then
    left = left + redis.call('DEL', KEYS[at])
    signal(KEYS[at + 1])
  end
end
return left
