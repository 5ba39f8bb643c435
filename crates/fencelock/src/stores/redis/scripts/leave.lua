-- Gives up one place. This half: others are in the queue.
prefix = string.sub(KEYS[3], 1, -17)
local queue = open_queue(bucket, KEYS[2], name, found[1])
if queue.count == 0 then unlike(bucket, 'a place and no record of its queue') end
remove(queue, read_place(ARGV[2], found[2], bucket))
departed(queue)
save(queue)
send()
return 1
