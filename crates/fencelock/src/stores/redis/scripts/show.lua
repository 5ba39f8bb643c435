-- A whole queue, front first, once everybody who is dead is removed.
-- KEYS: bucket, queue. ARGV: name, prefix of session keys.
prefix = ARGV[2]
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], call('HGET', KEYS[1], ARGV[1]))
bury(queue)
save(queue)
send()
local owners, shown = {}, {}
for from = 0, queue.count - 1, 256 do
  for _, place in ipairs(places_at(queue, from, math.min(from + 256, queue.count) - 1)) do
    local owner = owners[place.session] or call('HMGET', prefix .. place.session, 'host', 'pid', 'client')
    owners[place.session] = owner
    shown[#shown + 1] = {
      place.id, place.granted and 'g' or 'w', place.seq, place.weight, place.capacity, place.since, place.lease,
      place.session, place.purpose, owner[1] or '', owner[2] or '', owner[3] or '',
    }
  end
end
return shown
