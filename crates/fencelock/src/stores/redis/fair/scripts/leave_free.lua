-- Gives up one place, and nothing else. This half: nobody else is in the queue.
-- KEYS: bucket. ARGV: name, and how the record of the place begins if it is the only one and granted: up to its number,
-- or, if that is not known, up to its id.
local call, mine = redis.call, ARGV[2]
local bucket, name = KEYS[1], ARGV[1]
local record = call('HGET', bucket, name)
if not record then return 0 end
if string.sub(record, 1, #mine) == mine then return call('HDEL', bucket, name) end
local time = call('TIME')
