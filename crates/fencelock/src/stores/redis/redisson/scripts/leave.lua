-- KEYS: for each lock the keys of `try.lua`. ARGV: for each our field. Releases our locks, and answers how many.
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
