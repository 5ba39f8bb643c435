-- ARGV: the cursor, a pattern. Answers the next cursor, and the keys of locks of this layout: their fields distinguish them from other
-- hashes.
local function is_held(field)
  return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') or string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+:write$')
end
local page, keys = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500), {}
for _, key in ipairs(page[2]) do
  local found = false
  if mode_of(key) then
    if redis.call('HLEN', key) <= MOST then
      each_holder(key, function(field)
        found = found or is_held(field)
      end)
    end
  elseif not other(key) then
    found = is_held(holder(key))
  end
  if found then
    keys[#keys + 1] = key
  end
end
return {page[1], keys}
