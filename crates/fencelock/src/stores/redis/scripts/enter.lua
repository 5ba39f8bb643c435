-- Joins the queue of a name. This half: somebody is in the queue.
local queue = open_queue(bucket, order_of(bucket, name), name, found[2])
local weight, capacity, lease, own_session, purpose = string.match(args[4], '^(%d+) (%d+) (%d+) (%x+) (.*)$')
weight, capacity = tonumber(weight), tonumber(capacity)
prefix = string.sub(KEYS[2], 1, -17)
answered[field_of(queue, id)] = true

local function stands(place)
  save(queue)
  send()
  if place.granted then return {'granted', place.seq} end
  local holders, waiters = ahead(queue, id)
  return {'waiting', place.seq, holders, waiters, look_in(queue)}
end

local known = find(queue, id, queue.several and call('HGET', bucket, field_of(queue, id)))
if known then
  if known.session == own_session then
    if not known.granted and not is_covered(queue) then sweep(queue) end
    return stands(known)
  end
  -- Left over from a session of the same client that is over.
  remove(queue, known)
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
if not admitted() and args[5] then
  save(queue)
  send()
  return {'busy'}
end
local place = {
  id = id, granted = admitted(), seq = seq, weight = weight, capacity = capacity, since = time[1] .. ':' .. time[2],
  lease = lease, session = own_session, purpose = purpose,
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
