-- Gives up one place. This half: others are in the queue.
prefix = string.sub(KEYS[3], 1, -17)
local queue = open_queue(bucket, KEYS[2], name, record)
local place = find(queue, id, queue.several and call('HGET', bucket, field_of(queue, id)))
if not place or args[3] ~= '' and place.seq ~= args[3] then return 0 end
remove(queue, place)
departed(queue)
save(queue)
send()
return 1
