-- Joins the queue of a name. This half is for a queue that is not empty.
prefix = string.sub(KEYS[2], 1, -17)
local queue = open_queue(bucket, order_of(bucket, name), name, found[2])
local weight, capacity, lease, own_session, purpose = string.match(args[4], '^(%d+) (%d+) (%d+) (%x+) (.*)$')
weight, capacity = tonumber(weight), tonumber(capacity)
answered[field_of(queue, id)] = true

local function done(answer)
  finish()
  return answer
end

local function stands(place)
  if place.granted then return {'granted', place.seq} end
  local holders, waiters = ahead(queue, id)
  return {'waiting', place.seq, holders, waiters, look_in(queue)}
end

local known = find(queue, id, queue.several and call('HGET', bucket, field_of(queue, id)))
if known then
  if known.session == own_session then
    if not known.granted and not is_covered(queue) then sweep(queue) end
    return done(stands(known))
  end
  -- Left over from an ended session of the same client.
  remove(queue, known)
  departed(queue)
end

-- Whether this script used up its budget and found only dead contenders. A living one may still be ahead; the next script
-- finds a thousand dead ones fewer.
local function knows_nothing()
  if budget > 0 then return false end
  for _, alive in pairs(lives) do
    if alive then return false end
  end
  return true
end

if queue.count > 0 and queue.capacity ~= capacity then bury_front(queue) end
if queue.count > 0 and queue.capacity ~= capacity and knows_nothing() then return done({'again'}) end
if queue.count > 0 and queue.capacity ~= capacity then
  local first = places_at(queue, 0, 0)[1]
  return done({'conflict', first.weight, first.capacity})
end

local function admitted()
  return queue.count == 0 or queue.count == queue.granted and queue.weight + weight <= queue.capacity
end

if not admitted() and not is_covered(queue, weight) then sweep(queue, weight) end
if not admitted() and args[5] then return done({knows_nothing() and 'again' or 'busy'}) end
local place = {
  id = id, granted = admitted(), seq = seq, weight = weight, capacity = capacity, since = time[1] .. ':' .. time[2],
  lease = lease, session = own_session, purpose = purpose,
}
-- The first waiter, while alive, blocks the waiters behind it if there is room for them, or could be, since the script did not
-- look at all holders. A holder blocks them if it counts as looked at.
local is_first = queue.count == queue.granted and (queue.weight < queue.capacity or queue.covers ~= 'a')
if place.granted and queue.covers == 'a' or not place.granted and is_first then
  narrow(queue, lives_until(own_session))
end
-- A holder that asked for it (`watch`) receives a message about the first waiter behind it.
if not place.granted and queue.count == 1 then
  local only = places_at(queue, 0, 0)[1]
  if only.lease == TOLD then tell(queue, only.session, 'w ' .. only.id .. ' ' .. only.seq) end
end
local answer = {'granted', seq}
if not place.granted then answer = {'waiting', seq, queue.granted, queue.count - queue.granted, look_in(queue)} end
append(queue, place)
queue.put['.'] = seq
if not found[3] then queue.put['..'] = seq end
return done(answer)
