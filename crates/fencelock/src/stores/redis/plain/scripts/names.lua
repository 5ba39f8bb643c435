-- ARGV: the cursor, a pattern, the beginning of the values to list. Answers the next cursor, and keys.
local page, keys = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500), {}
for _, key in ipairs(page[2]) do
  local value = redis.pcall('GETRANGE', key, 0, 63)
  if type(value) == 'string' and value ~= '' and string.sub(value, 1, #ARGV[3]) == ARGV[3] then
    keys[#keys + 1] = key
  end
end
return {page[1], keys}
