-- KEYS: the lock, the records of its breaks, its further key. ARGV: the beginning of the value if it is ours,
-- its digest if it is another client's, the record, the token or nothing.
for _, record in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if record == ARGV[3] then
    return 1
  end
end
local value = redis.pcall('GETRANGE', KEYS[1], 0, 4095)
if type(value) ~= 'string' or (value == '' and redis.call('TYPE', KEYS[1]).ok == 'none') then
  return 0
end
-- Another grant of the same client has another number.
if counts and ARGV[4] ~= '' and redis.pcall('GET', KEYS[3]) ~= ARGV[4] then
  return 0
end
if string.sub(value, 1, #ARGV[1]) ~= ARGV[1] and string.sub(redis.sha1hex(value), 1, 32) ~= ARGV[2] then
  return 0
end
-- The record first: every break has one, even if the server's memory is used up.
redis.call('RPUSH', KEYS[2], ARGV[3])
redis.call('LTRIM', KEYS[2], -128, -1)
redis.call('PEXPIRE', KEYS[2], 2592000000)
redis.call('DEL', KEYS[1])
signal(KEYS[3])
return 1
