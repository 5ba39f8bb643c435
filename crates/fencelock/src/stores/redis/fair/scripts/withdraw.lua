-- Withdraws a request, arrived or not: from now on no `enter` of its epoch takes effect.
-- KEYS: bucket, queue, session. ARGV: name, id.
prefix = string.sub(KEYS[3], 1, -17)
local field = ARGV[1] .. '\n' .. ARGV[2]
local found = call('HMGET', KEYS[1], ARGV[1], field)
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
local place = find(queue, ARGV[2], found[2])
local lives_still = call('HGET', KEYS[3], 'epoch')
if place then
  remove(queue, place)
  departed(queue)
end
if lives_still then
  -- After a removal the server allows writes without free memory, even if the removal found nothing.
  writes = { { 'HDEL', KEYS[1], field }, { 'HINCRBY', KEYS[3], 'epoch', 1 } }
end
local epoch = finish()
return { lives_still and string.format(decimal, epoch) or '', place and 1 or 0 }
