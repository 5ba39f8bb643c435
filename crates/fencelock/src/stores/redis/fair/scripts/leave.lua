-- Gives up a place. This half is for a queue with others, or for a place that waits.
prefix = string.sub(bucket, 1, -13) .. 'session:'
local id, seq = string.match(mine, '^(%x+%-%x+) g (%d+) $')
if not id then id = string.sub(mine, 1, -2) end
local queue = open_queue(bucket, order_of(bucket, name), name, record)
local place = find(queue, id, queue.several and call('HGET', bucket, field_of(queue, id)))
if not place or seq and place.seq ~= seq then return 0 end
remove(queue, place)
departed(queue)
finish()
return 1
