-- Replaces the claim of a granted place by a lighter one.
-- KEYS: bucket, queue, session. ARGV: name, id, seq, weight, capacity.
prefix = string.sub(KEYS[3], 1, -17)
local field = ARGV[1] .. '\n' .. ARGV[2]
local found = call('HMGET', KEYS[1], ARGV[1], field)
if not found[2] then return 0 end
local place = read_place(ARGV[2], found[2], KEYS[1])
if place.seq ~= ARGV[3] or not place.granted then return 0 end
local weight, capacity = tonumber(ARGV[4]), tonumber(ARGV[5])
if capacity ~= place.capacity or weight > place.weight then error('FLINVALID a lighter claim is not lighter', 0) end
if weight == place.weight then return 1 end
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
if queue.count == 0 then unlike(KEYS[1], 'a place and no record of its queue') end
-- What comes after a removal is allowed without free memory.
call('HDEL', KEYS[1], field)
queue.weight = queue.weight - place.weight + weight
place.weight = weight
put_place(queue, place)
departed(queue)
save(queue)
send()
return 1
