-- Replaces the claim of a granted place by a lighter one.
-- KEYS: bucket, queue, session. ARGV: name, id, seq, weight.
prefix = string.sub(KEYS[3], 1, -17)
local field = ARGV[1] .. '\n' .. ARGV[2]
local found = call('HMGET', KEYS[1], ARGV[1], field)
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
local place = find(queue, ARGV[2], found[2])
if not place or place.seq ~= ARGV[3] or not place.granted then return 0 end
local weight = tonumber(ARGV[4])
if weight == place.weight then return 1 end
queue.weight = queue.weight - place.weight + weight
place.weight = weight
put_place(queue, place)
departed(queue)
finish()
return 1
