-- Joins the queue of a name. This half: somebody is in the queue.
local queue = open_queue(bucket, KEYS[2], name, found[2])
local weight, capacity = tonumber(ARGV[4]), tonumber(ARGV[5])
prefix = string.sub(KEYS[3], 1, -17)
answered[field] = true

local function stands(place)
  save(queue)
  send()
  if place.granted then return {'granted', place.seq} end
  local holders, waiters = ahead(queue, id)
  return {'waiting', place.seq, holders, waiters, look_in(queue)}
end

if found[3] then
  if queue.count == 0 then unlike(bucket, 'a place and no record of its queue') end
  local place = read_place(id, found[3], bucket)
  queue.places[id] = place
  if place.session == own_session then
    if not place.granted and not is_covered(queue) then sweep(queue) end
    return stands(place)
  end
  -- Left over from a session of the same client that is over.
  remove(queue, place)
  departed(queue)
end

if queue.count > 0 and queue.capacity ~= capacity then bury(queue) end
if queue.count > 0 and queue.capacity ~= capacity then
  local first = places_at(queue, 0, 0)[1]
  save(queue)
  send()
  return {'conflict', first.weight, first.capacity}
end

local function admitted()
  return queue.count == 0 or queue.count == queue.granted and queue.weight + weight <= queue.capacity
end

if not admitted() and not (queue.count > queue.granted and is_covered(queue)) then sweep(queue, weight) end
if not admitted() and ARGV[6] ~= '1' then
  save(queue)
  send()
  return {'busy'}
end
local place = {
  id = id, granted = admitted(), seq = draw(), weight = weight, capacity = capacity,
  since = string.format(decimal, now), lease = ARGV[7], session = own_session, purpose = ARGV[8],
}
if not place.granted and queue.count == queue.granted and queue.weight < queue.capacity then
  -- It is the first waiter now, and whoever comes behind it waits until it is dead.
  cover(queue, queue.covers, math.min(queue.boundary, lives_until(own_session)))
end
append(queue, place)
queue.put['.'] = place.seq
save(queue)
send()
if place.granted then return {'granted', place.seq} end
return {'waiting', place.seq, queue.granted, queue.count - queue.granted - 1, look_in(queue)}
