-- What all scripts know about queues; put between the halves of a script. Expects: call, time.
--
-- The record of a name is its only place, or else: places, granted places, their weight, capacity, what the boundary
-- covers, boundary (ms). The boundary: before it, nobody can be dead who keeps the first waiter, or those behind it,
-- from being granted. It covers all holders ('a'), or only as many as leave no room for the first waiter ('f').
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local prefix
local lives, letters, answered = {}, {}, {}
local decimal = '%.0f'

local function unlike(key, what)
  error('FLLAYOUT ' .. key .. ' holds ' .. what .. ', which this layout does not know', 0)
end

-- Until when a session lives at least, in ms; nil when it is dead.
local function lives_until(session)
  local known = lives[session]
  if known == nil then
    local left = call('PTTL', prefix .. session)
    known = left >= 0 and now + left + 1 or left == -1 and now + 1000
    lives[session] = known
  end
  return known
end

local function read_place(id, text, key)
  local state, seq, since, weight, capacity, lease, session, purpose =
    string.match(text, '^([gw]) (%d+) (%d+:%d+) (%d+) (%d+) (%d+) (%x+) (.*)$')
  if not state then unlike(key, 'a place') end
  return {
    id = id, granted = state == 'g', seq = seq, weight = tonumber(weight), capacity = tonumber(capacity), since = since,
    lease = lease, session = session, purpose = purpose,
  }
end

-- The order of the queue of a name. A key that the caller names by that of the bucket, whose hash tag it has.
local function order_of(bucket, name)
  return string.sub(bucket, 1, -7) .. 'queue:' .. name
end

-- A queue, from its record if there is one.
local function open_queue(bucket, order, name, record)
  local queue = {
    bucket = bucket, order = order, name = name, record = record, several = false, places = {}, put = {}, gone = {},
    count = 0, grown = false, granted = 0, weight = 0, capacity = 0, covers = '-', boundary = 0,
  }
  if not record then return queue end
  local id, text = string.match(record, '^(%x+%-%x+) (.*)$')
  if id then
    local only = read_place(id, text, bucket)
    queue.places[id], queue.only, queue.count, queue.capacity = only, id, 1, only.capacity
    if only.granted then queue.granted, queue.weight = 1, only.weight end
    return queue
  end
  local count, granted, weight, capacity, covers, boundary =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) ([-af]) (%d+)$')
  if not count then unlike(bucket, 'the record of a queue') end
  queue.several, queue.count, queue.granted, queue.weight = true, tonumber(count), tonumber(granted), tonumber(weight)
  queue.capacity, queue.covers, queue.boundary = tonumber(capacity), covers, tonumber(boundary)
  return queue
end

local function field_of(queue, id)
  return queue.name .. '\n' .. id
end

-- A place by its id and what its field holds; nil when it is not there.
local function find(queue, id, text)
  if text then
    if not queue.several then unlike(queue.bucket, 'a place that its queue does not know') end
    queue.places[id] = read_place(id, text, queue.bucket)
  end
  return queue.places[id]
end

local function text_of(place)
  return table.concat({
    place.granted and 'g' or 'w', place.seq, place.since, string.format(decimal, place.weight),
    string.format(decimal, place.capacity), place.lease, place.session, place.purpose,
  }, ' ')
end

local function put_place(queue, place)
  queue.places[place.id] = place
  queue.put[field_of(queue, place.id)] = text_of(place)
end

-- The places from one rank to another, both counted from 0 and within the queue.
local function places_at(queue, from, to)
  local ids = queue.count == 1 and { queue.only } or call('ZRANGE', queue.order, from, to)
  if #ids ~= to - from + 1 then unlike(queue.order, 'another number of places than its record says') end
  local fields, missing = {}, {}
  for _, id in ipairs(ids) do
    if not queue.places[id] then
      fields[#fields + 1], missing[#missing + 1] = field_of(queue, id), id
    end
  end
  if #fields > 0 then
    local texts = call('HMGET', queue.bucket, unpack(fields))
    for index, id in ipairs(missing) do
      if not texts[index] then unlike(queue.bucket, 'no place where there should be one') end
      queue.places[id] = read_place(id, texts[index], queue.bucket)
    end
  end
  local places = {}
  for index, id in ipairs(ids) do places[index] = queue.places[id] end
  return places
end

local function append(queue, place)
  if queue.count == 0 then
    queue.only, queue.capacity = place.id, place.capacity
  elseif queue.count == 1 then
    local only = places_at(queue, 0, 0)[1]
    call('ZADD', queue.order, only.seq, only.id, place.seq, place.id)
    put_place(queue, only)
  else
    call('ZADD', queue.order, place.seq, place.id)
  end
  queue.count, queue.grown = queue.count + 1, true
  if place.granted then queue.granted, queue.weight = queue.granted + 1, queue.weight + place.weight end
  put_place(queue, place)
end

local function remove(queue, place)
  if queue.count == 2 then
    local ids = call('ZRANGE', queue.order, 0, 1)
    if #ids ~= 2 then unlike(queue.order, 'another number of places than its record says') end
    call('DEL', queue.order)
    queue.only = ids[1] == place.id and ids[2] or ids[1]
  elseif queue.count > 2 then
    call('ZREM', queue.order, place.id)
  end
  queue.count = queue.count - 1
  if place.granted then queue.granted, queue.weight = queue.granted - 1, queue.weight - place.weight end
  local field = field_of(queue, place.id)
  queue.places[place.id], queue.put[field] = nil, nil
  if queue.several then queue.gone[#queue.gone + 1] = field end
end

-- Something to tell a session. All that one script has to tell it is one message.
local function tell(queue, session, line)
  local letter = letters[session]
  if not letter then
    letter = {}
    letters[session] = letter
    letters[#letters + 1] = session
  end
  if letter.about ~= queue.name then
    letter.about = queue.name
    letter[#letter + 1] = 'n ' .. queue.name
  end
  letter[#letter + 1] = line
end

local function cover(queue, covers, boundary)
  queue.covers, queue.boundary = covers, boundary
end

-- Grants the waiters that fit behind those that are granted already, the living ones, in their order.
local function settle(queue)
  local fresh, soonest, size = 0, math.huge, 1
  local full = false
  while not full and queue.count > queue.granted and queue.weight < queue.capacity do
    for _, place in ipairs(places_at(queue, queue.granted, math.min(queue.granted + size, queue.count) - 1)) do
      local alive = lives_until(place.session)
      if not alive then
        remove(queue, place)
      else
        soonest = math.min(soonest, alive)
        full = queue.weight + place.weight > queue.capacity
        if full then break end
        place.granted, place.since = true, time[1] .. ':' .. time[2]
        queue.granted, queue.weight, fresh = queue.granted + 1, queue.weight + place.weight, fresh + place.weight
        put_place(queue, place)
        if not answered[field_of(queue, place.id)] then
          tell(queue, place.session, 'g ' .. place.id .. ' ' .. place.seq)
        end
        if queue.weight == queue.capacity then break end
      end
    end
    size = math.min(size * 2, 64)
  end
  if fresh == queue.weight and fresh > 0 then
    cover(queue, 'a', soonest)
  elseif queue.covers ~= '-' and soonest < queue.boundary then
    cover(queue, queue.covers, soonest)
  end
end

-- Removes dead holders until the living ones leave no room for `weight`; says how much those take, and until when.
local function check_holders(queue, weight)
  local taken, soonest, rank, size = 0, math.huge, 0, 1
  while rank < queue.granted do
    for _, place in ipairs(places_at(queue, rank, math.min(rank + size, queue.granted) - 1)) do
      local alive = lives_until(place.session)
      if not alive then
        remove(queue, place)
      else
        rank, taken, soonest = rank + 1, taken + place.weight, math.min(soonest, alive)
        if taken + weight > queue.capacity then return taken, soonest, rank == queue.granted end
      end
    end
    size = math.min(size * 4, 256)
  end
  return taken, soonest, true
end

-- The first waiter that lives; the dead ones ahead of it are removed.
local function first_waiter(queue)
  while queue.count > queue.granted do
    local place = places_at(queue, queue.granted, queue.granted)[1]
    local alive = lives_until(place.session)
    if alive then return place, alive end
    remove(queue, place)
  end
end

-- Removes whoever is dead and keeps the first waiter from being granted, or without waiters a newcomer of `weight` (nil
-- for no newcomer), grants what can be granted, and sets the boundary.
local function sweep(queue, weight)
  while true do
    local first, alive = first_waiter(queue)
    local wanted = first and first.weight or weight
    if not wanted then return end
    local taken, soonest, all = check_holders(queue, wanted)
    if taken + wanted > queue.capacity then
      return cover(queue, all and 'a' or 'f', math.min(soonest, alive or math.huge))
    end
    cover(queue, '-', 0)
    if not first then return end
    settle(queue)
  end
end

local function is_covered(queue)
  return queue.covers ~= '-' and now < queue.boundary
end

-- What follows from a departure, or from a claim that became lighter.
local function departed(queue)
  if queue.covers == 'f' then cover(queue, '-', 0) end
  settle(queue)
  if queue.count > queue.granted and not is_covered(queue) then sweep(queue) end
end

-- Removes everybody who is dead.
local function bury(queue)
  local rank = 0
  while rank < queue.count do
    for _, place in ipairs(places_at(queue, rank, math.min(rank + 256, queue.count) - 1)) do
      if lives_until(place.session) then rank = rank + 1 else remove(queue, place) end
    end
  end
  departed(queue)
end

-- In how many ms it is worth while to look again; -1 for never.
local function look_in(queue)
  if queue.covers == '-' then return -1 end
  return math.max(queue.boundary - now, 0)
end

local function in_parts(command, key, list)
  for from = 1, #list, 4000 do
    call(command, key, unpack(list, from, math.min(from + 3999, #list)))
  end
end

local function record_of(queue)
  if queue.count == 0 then return nil end
  if queue.count == queue.granted then cover(queue, '-', 0) end
  if queue.count == 1 then
    local only = places_at(queue, 0, 0)[1]
    local field = field_of(queue, only.id)
    queue.put[field] = nil
    if queue.several then queue.gone[#queue.gone + 1] = field end
    return only.id .. ' ' .. text_of(only)
  end
  return string.format('%.0f %.0f %.0f %.0f %s %.0f', queue.count, queue.granted, queue.weight, queue.capacity,
    queue.covers, queue.boundary)
end

-- Writes what changed. Removals come first: they are allowed without free memory, and everything after them is, too. Only
-- an arrival may be refused for want of memory, so where nothing is removed before other changes, nothing is "removed".
local function save(queue)
  local record, list = record_of(queue), {}
  if not record and queue.record then queue.gone[#queue.gone + 1] = queue.name end
  if record and record ~= queue.record then queue.put[queue.name] = record end
  for field, text in pairs(queue.put) do
    list[#list + 1] = field
    list[#list + 1] = text
  end
  if #list > 0 and #queue.gone == 0 and not queue.grown then queue.gone[1] = field_of(queue, '') end
  in_parts('HDEL', queue.bucket, queue.gone)
  in_parts('HSET', queue.bucket, list)
  queue.record, queue.several, queue.gone, queue.put = record, queue.count > 1, {}, {}
end

local function send()
  for _, session in ipairs(letters) do
    if #letters[session] > 0 then call('PUBLISH', prefix .. session, table.concat(letters[session], '\n')) end
  end
end

-- How many hold the lock and how many wait ahead of a waiter.
local function ahead(queue, id)
  if queue.count == 1 then return 0, 0 end
  return queue.granted, call('ZRANK', queue.order, id) - queue.granted
end
