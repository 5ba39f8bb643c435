-- Part of a queue, once those in it who are dead are removed: how many are in the queue, whether so many were dead that the
-- rest is for the next one, and for each place what is known of it.
-- KEYS: bucket, queue. ARGV: name, prefix of session keys, how many places to leave out at the front, the number of the
-- place after which to begin ('' for none), how many places.
prefix = ARGV[2]
local skip, after, limit = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], call('HGET', KEYS[1], ARGV[1]))
clear_way(queue)

local function start()
  if after == '' then return skip end
  if queue.several then
    fill_holes(queue)
    return rank_without_holes(queue, call('ZCOUNT', queue.order, '-inf', after))
  end
  local only = places_at(queue, 0, 0)[1]
  return tonumber(only.seq) <= tonumber(after) and 1 or 0
end

local function page()
  local rank, found = start(), {}
  -- It gets on, whatever was looked at before.
  budget = math.max(budget, limit)
  while #found < limit and rank < queue.count and budget > 0 do
    for _, place in ipairs(places_at(queue, rank, math.min(rank + math.min(limit - #found, budget), queue.count) - 1)) do
      if lives_until(place.session) then
        rank, found[#found + 1] = rank + 1, place
      else
        remove(queue, place)
        budget = budget - 1
      end
    end
  end
  local is_cut = #found < limit and rank < queue.count
  departed(queue)
  return found, is_cut
end

local found, is_cut = {}, false
if queue.count > 0 then found, is_cut = page() end
local owners, shown = {}, { queue.count, is_cut and 1 or 0 }
for _, place in ipairs(found) do
  local owner = owners[place.session] or call('HMGET', prefix .. place.session, 'host', 'pid', 'client')
  owners[place.session] = owner
  shown[#shown + 1] = row_of(place, owner)
end
finish()
return shown
