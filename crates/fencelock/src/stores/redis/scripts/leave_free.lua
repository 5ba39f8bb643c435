-- Gives up one place, and nothing else. This half: nobody else is in the queue.
-- KEYS: bucket, queue, session. ARGV: name, id, seq ('' for any).
local call = redis.call
local bucket, name = KEYS[1], ARGV[1]
local field = name .. '\n' .. ARGV[2]
local found = call('HMGET', bucket, name, field)
if not found[2] then return 0 end
if ARGV[3] ~= '' and string.match(found[2], '^%a (%d+) ') ~= ARGV[3] then return 0 end
if found[1] and string.sub(found[1], 1, 2) == '1 ' then
  call('HDEL', bucket, name, field)
  return 1
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
