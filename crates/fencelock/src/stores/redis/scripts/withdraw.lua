-- Takes a request back, whether or not it came: no `enter` of its epoch is let in from now on.
-- KEYS: bucket, queue, session. ARGV: name, id.
prefix = string.sub(KEYS[3], 1, -17)
local field = ARGV[1] .. '\n' .. ARGV[2]
local found = call('HMGET', KEYS[1], ARGV[1], field)
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
local place = find(queue, ARGV[2], found[2])
-- Even when it removes nothing, what comes after a removal is allowed without free memory.
call('HDEL', KEYS[1], field)
local epoch = ''
if call('EXISTS', KEYS[3]) == 1 then epoch = string.format(decimal, call('HINCRBY', KEYS[3], 'epoch', 1)) end
if not place then return {epoch, 0} end
remove(queue, place)
departed(queue)
save(queue)
send()
return {epoch, 1}
