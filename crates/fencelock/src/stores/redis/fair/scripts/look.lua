-- The standing of places of one session, under any number of names.
-- KEYS: session, then bucket and queue of each name. ARGV: exact, then for each name: the name, how many ids, the ids.
prefix = string.sub(KEYS[1], 1, -17)
local own_session = string.sub(KEYS[1], -16)
if call('EXISTS', KEYS[1]) == 0 then return {0} end
local exact = ARGV[1] == '1'

local function seen(queue, id, place)
  if not place or place.session ~= own_session then return {'missing'} end
  if place.granted then return {'granted', place.seq} end
  if not exact then return {'waiting', place.seq} end
  local holders, waiters = ahead(queue, id)
  return {'waiting', place.seq, holders, waiters}
end

local function look(bucket, order, name, ids)
  local fields = { name }
  for index, id in ipairs(ids) do fields[index + 1] = name .. '\n' .. id end
  local found = call('HMGET', bucket, unpack(fields))
  local queue, reply = open_queue(bucket, order, name, found[1]), {}
  for index, id in ipairs(ids) do
    local place = find(queue, id, found[index + 1])
    answered[fields[index + 1]] = place and place.session == own_session
  end
  if queue.count > queue.granted and not is_covered(queue) then sweep(queue) end
  reply[1] = look_in(queue)
  for _, id in ipairs(ids) do reply[#reply + 1] = seen(queue, id, queue.places[id]) end
  return reply
end

local reply, at = { 1 }, 2
for index = 2, #KEYS, 2 do
  local name, count, ids = ARGV[at], tonumber(ARGV[at + 1]), {}
  for number = 1, count do ids[number] = ARGV[at + 1 + number] end
  at = at + 2 + count
  reply[#reply + 1] = look(KEYS[index], KEYS[index + 1], name, ids)
end
finish()
return reply
