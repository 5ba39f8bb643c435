-- KEYS: the lock, its further key. Answers {} for a free lock, {type} for a key that is no lock of this layout, else {type, value, its
-- digest, nothing, milliseconds left, token}: of the value its first 4096 bytes.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return {}
elseif kind ~= 'string' then
  return {kind}
end
local value = redis.call('GETRANGE', KEYS[1], 0, 4095)
local number = counts and redis.pcall('GET', KEYS[2])
-- A value that is no number is no counter.
local token = type(number) == 'string' and string.find(number, '^%d+$') and number or nil
return {kind, value, redis.sha1hex(value), '', redis.call('PTTL', KEYS[1]), token}
