-- Writes or deletes the note on a lock, if that grant is current and its session lives.
-- KEYS: bucket, queue, note. ARGV: name, id, seq, prefix of session keys, and to write: ms to keep it (0 without an end), owner, value.
prefix = ARGV[4]
local found = call('HMGET', KEYS[1], ARGV[1], ARGV[1] .. '\n' .. ARGV[2])
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
local place = find(queue, ARGV[2], found[2])
if not place or place.seq ~= ARGV[3] or not place.granted or not lives_until(place.session) then return 0 end
if not ARGV[5] then
  call('DEL', KEYS[3])
  return 1
end
local text = table.concat({ time[1] .. ':' .. time[2], ARGV[5], ARGV[3], ARGV[6] }, ' ') .. '\n' .. ARGV[7]
if ARGV[5] == '0' then call('SET', KEYS[3], text) else call('SET', KEYS[3], text, 'PX', ARGV[5]) end
return 1
