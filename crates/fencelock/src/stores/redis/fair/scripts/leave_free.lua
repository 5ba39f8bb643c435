-- Gives up a place, and nothing else. This half is for a granted place that is alone in its queue.
-- KEYS: bucket. ARGV: name, and the beginning of the record if the place is alone and granted: up to its number, or, if
-- the number is unknown, up to its id.
local call, mine = redis.call, ARGV[2]
local bucket, name = KEYS[1], ARGV[1]
local record = call('HGET', bucket, name)
if not record then return 0 end
if string.sub(record, 1, #mine) == mine then return call('HDEL', bucket, name) end
local time = call('TIME')
