-- Gives up one place, and nothing else. This half: nobody else is in the queue.
-- KEYS: bucket, queue, session. ARGV: name, id, seq ('' for any).
local call, args = redis.call, ARGV
local bucket, name, id = KEYS[1], args[1], args[2]
local record = call('HGET', bucket, name)
if not record then return 0 end
local mine = id .. ' g ' .. args[3] .. ' '
if string.sub(record, 1, #mine) == mine then return call('HDEL', bucket, name) end
local time = call('TIME')
