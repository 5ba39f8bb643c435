-- Part of a queue: its living places. Writes nothing.
-- KEYS: bucket, queue. ARGV: name, prefix of session keys, how many living places to skip, the number of the place after
-- which to begin ('' for the front), how many places.
-- Answers the length of the queue, how many of the places looked at are dead, how many were skipped, whether the end of the
-- queue was reached, the number of the last place looked at, and a row for each place.
prefix = ARGV[2]
local skip, after, limit = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], call('HGET', KEYS[1], ARGV[1]))

local function start()
  if after == '' or queue.count == 0 then return 0 end
  if queue.several then return call('ZCOUNT', queue.order, '-inf', after) end
  return tonumber(places_at(queue, 0, 0)[1].seq) <= tonumber(after) and 1 or 0
end

local rank, found, dead, skipped, last = start(), {}, 0, 0, after
while rank < queue.count and #found < limit and budget > 0 do
  local size = math.min(skip - skipped + limit - #found, budget, 256)
  for _, place in ipairs(places_at(queue, rank, math.min(rank + size, queue.count) - 1)) do
    -- A reader that asks for the next page by this number would get the same places again, and never reach the end.
    if tonumber(place.seq) <= (tonumber(last) or 0) then unlike(queue.order, 'places in another order than their numbers') end
    rank, last, budget = rank + 1, place.seq, budget - 1
    if not lives_until(place.session) then
      dead = dead + 1
    elseif skipped < skip then
      skipped = skipped + 1
    else
      found[#found + 1] = place
    end
  end
end
local owners, shown = {}, { queue.count, dead, skipped, rank >= queue.count and 1 or 0, last }
for _, place in ipairs(found) do
  local owner = owners[place.session] or call('HMGET', prefix .. place.session, 'host', 'pid', 'client')
  owners[place.session] = owner
  shown[#shown + 1] = row_of(place, owner)
end
return shown
