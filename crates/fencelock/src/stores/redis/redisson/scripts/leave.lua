-- KEYS: for each lock what `try.lua` is given. ARGV: for each our field. Ends those that are ours, and says how many.
local each, left = #KEYS / #ARGV, 0
for index, field in ipairs(ARGV) do
  local at = (index - 1) * each + 1
  local hold, mode = our_hold(KEYS[at], field)
  if hold and mode then
    left = left + 1
    let_go(KEYS[at], mode, field)
  elseif hold then
    left = left + redis.call('DEL', KEYS[at])
    tell(KEYS[at + 1])
  end
end
return left
