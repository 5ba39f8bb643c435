-- Breaks exactly one grant, and keeps the record of it.
-- KEYS: bucket, queue, breaks. ARGV: name, id, seq, record, reason, prefix of session keys.
prefix = ARGV[6]
local field = ARGV[1] .. '\n' .. ARGV[2]
local found = call('HMGET', KEYS[1], ARGV[1], field)
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
local place = find(queue, ARGV[2], found[2])
local kept = call('LRANGE', KEYS[3], 0, -1)
if not place or place.seq ~= ARGV[3] or not place.granted then
  for _, record in ipairs(kept) do
    if record == ARGV[4] then return 1 end
  end
  return 0
end
writes = {
  { 'HDEL', KEYS[1], field },
  { 'RPUSH', KEYS[3], ARGV[4] },
  { 'LTRIM', KEYS[3], -128, -1 },
  { 'PEXPIRE', KEYS[3], 2592000000 },
}
remove(queue, place)
if call('HGET', prefix .. place.session, 'epoch') then
  writes[#writes + 1] = { 'HSET', prefix .. place.session, 'x:' .. field, place.seq .. ' ' .. ARGV[5] }
  tell(queue, place.session, 'b ' .. place.id .. ' ' .. place.seq .. ' ' .. ARGV[5])
end
departed(queue)
finish()
return 1
