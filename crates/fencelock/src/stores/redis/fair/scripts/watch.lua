-- Marks a granted place without waiters behind it, so that its session receives a message about the first one. Answers 1 if a waiter
-- is there already, or the grant is gone.
-- KEYS: bucket, queue. ARGV: name, id, seq, prefix of session keys.
prefix = ARGV[4]
local found = call('HMGET', KEYS[1], ARGV[1], ARGV[1] .. '\n' .. ARGV[2])
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
local place = find(queue, ARGV[2], found[2])
if not place or place.seq ~= ARGV[3] or queue.count > queue.granted then return 1 end
if place.lease ~= TOLD then
  place.lease = TOLD
  put_place(queue, place)
  finish()
end
return 0
