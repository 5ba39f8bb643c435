-- Part of a queue, once those in it who are dead are removed: how many are in the queue, how many of them hold, and for each
-- place what is known of it.
-- KEYS: bucket, queue. ARGV: name, prefix of session keys, how many places to leave out at the front, the number of the
-- place after which to begin ('' for none), how many places.
prefix = ARGV[2]
local skip, after, limit = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], call('HGET', KEYS[1], ARGV[1]))
if queue.count > 0 and not is_covered(queue, queue.capacity) then sweep(queue, queue.capacity) end

local function start()
  if after == '' then return skip end
  if queue.several then return call('ZCOUNT', queue.order, '-inf', after) end
  local only = places_at(queue, 0, 0)[1]
  return tonumber(only.seq) <= tonumber(after) and 1 or 0
end

local function page()
  local rank, found = start(), {}
  if after ~= '' and queue.several then
    local passed = 0
    fill_holes(queue)
    for _, hole in ipairs(queue.holes) do
      if hole < rank then passed = passed + 1 end
    end
    rank = rank - passed
  end
  while #found < limit and rank < queue.count do
    for _, place in ipairs(places_at(queue, rank, math.min(rank + limit - #found, queue.count) - 1)) do
      if lives_until(place.session) then
        rank, found[#found + 1] = rank + 1, place
      else
        remove(queue, place)
      end
    end
  end
  departed(queue)
  return found
end

local found = queue.count > 0 and page() or {}
local owners, shown = {}, { queue.count, queue.granted }
for _, place in ipairs(found) do
  local owner = owners[place.session] or call('HMGET', prefix .. place.session, 'host', 'pid', 'client')
  owners[place.session] = owner
  shown[#shown + 1] = row_of(place, owner)
end
finish()
return shown
