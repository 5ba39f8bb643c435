-- Reads queues, for all scripts; stands between the halves of a script. Expects: call, time.
--
-- A script reads first, computes then, and writes at its end, in `finish` alone: a refused read leaves nothing half done.
--
-- The record of a name is its only place, or else: places, granted places, their weight, capacity, the checked holders, the
-- boundary and when it was set (ms). The boundary is the earliest expiry among the sessions that block the first waiter, or those
-- behind it: from when it was set up to then, none of them needs a look. The checked holders: none ('-'), all ('a'), as many as
-- leave no room for that weight ('f5'), or, among many, the holders up to that number so far ('p1234'): once the boundary has
-- passed, the check continues there, and the state of the holders before is unknown.
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local prefix
local lives, timeless, answered, queues, writes = {}, {}, {}, {}, {}
local decimal = '%.0f'
-- The most places that a script checks for being dead, and the ms until the next script continues.
local budget, again = 1000, 20
-- A shorter queue than this is read as a whole.
local short = 8

local function unlike(key, what)
  error('FLLAYOUT ' .. key .. ' holds ' .. what .. ', which this layout does not know', 0)
end

-- Until when a session lives at least, in ms; false when it is dead. `finish` gives a session without an end its ttl.
local function lives_until(session)
  local known = lives[session]
  if known == nil then
    local left = call('PTTL', prefix .. session)
    if left == -1 then timeless[#timeless + 1] = session end
    -- A clock that went back leaves more than a ttl. Such a session gets its ttl anew, as from a renewal. The script asks only
    -- if much is left, which is rare: after a step back of less than ten minutes, a waiter may wait that long for the dead.
    if left > 600000 then
      local ttl = tonumber(call('HGET', prefix .. session, 'ttl'))
      if ttl and left > ttl then timeless[#timeless + 1], left = session, ttl end
    end
    known = left >= 0 and now + left + 1 or left == -1 and now + 1000
    lives[session] = known
  end
  return known
end

-- `lease` is 0, or `TOLD` if the holder asked for a message about the first waiter behind it, or a value of an earlier release, which
-- stays.
local TOLD = '1'
local function read_place(id, text, key)
  local state, seq, since, weight, capacity, lease, session, purpose =
    string.match(text, '^([gw]) (%d+) (%d+:%d+) (%d+) (%d+) (%d+) (%x+) (.*)$')
  if not state then unlike(key, 'a place') end
  return {
    id = id, granted = state == 'g', seq = seq, weight = tonumber(weight), capacity = tonumber(capacity), since = since,
    lease = lease, session = session, purpose = purpose,
  }
end

-- The key of a queue's order, from the key of its bucket, whose hash tag it has.
local function order_of(bucket, name)
  return string.sub(bucket, 1, -7) .. 'queue:' .. name
end

-- A queue, from its record if there is one.
local function open_queue(bucket, order, name, record)
  local queue = {
    bucket = bucket, order = order, name = name, record = record, several = false, places = {}, put = {}, left = {},
    away = {}, holes = {}, told = {}, stored = 0, count = 0, granted = 0, weight = 0, capacity = 0, covers = '-',
    mark = 0, boundary = 0, set = 0, line = not record and {} or nil,
  }
  queues[#queues + 1] = queue
  if not record then return queue end
  local id, text = string.match(record, '^(%x+%-%x+) (.*)$')
  if id then
    local only = read_place(id, text, bucket)
    queue.places[id], queue.line, queue.count, queue.capacity = only, { id }, 1, only.capacity
    if only.granted then queue.granted, queue.weight = 1, only.weight end
    return queue
  end
  local count, granted, weight, capacity, covers, mark, boundary, set =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) ([-afp])(%d*) (%d+) (%d+)$')
  if not count then unlike(bucket, 'the record of a queue') end
  queue.several, queue.count, queue.granted, queue.weight = true, tonumber(count), tonumber(granted), tonumber(weight)
  queue.capacity, queue.covers, queue.mark = tonumber(capacity), covers, tonumber(mark) or 0
  queue.boundary, queue.set, queue.stored = tonumber(boundary), tonumber(set), queue.count
  return queue
end

local function field_of(queue, id)
  return queue.name .. '\n' .. id
end

-- A place by its id and the text of its field; nil when it is not there.
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

-- Finds the stored ranks of the places that left: a place that a caller asks for by rank is behind them. Holders are ahead of
-- every waiter, so for a waiter it is enough to count them: this returns their number.
local function fill_holes(queue, is_for_waiters)
  local away = queue.away
  queue.away = {}
  local before = #queue.holes
  for _, place in ipairs(away) do
    local rank = place.rank
    if not rank and is_for_waiters and place.granted then
      queue.away[#queue.away + 1] = place
    else
      rank = rank or call('ZRANK', queue.order, place.id)
      if not rank then unlike(queue.order, 'another number of places than its record says') end
      queue.holes[#queue.holes + 1] = rank
    end
  end
  if #queue.holes > before then table.sort(queue.holes) end
  return #queue.away
end

-- The rank now of the place that is stored at `rank`: without the places that left, whose ranks are known.
local function rank_without_holes(queue, rank)
  local passed = 0
  for _, hole in ipairs(queue.holes) do
    if hole < rank then passed = passed + 1 end
  end
  return rank - passed
end

-- The stored rank of the place that has this rank now.
local function stored_rank(queue, rank)
  for _, hole in ipairs(queue.holes) do
    if hole > rank then break end
    rank = rank + 1
  end
  return rank
end

-- The ids of all stored places of a short queue that are still there.
local function short_line(queue)
  if not queue.line then queue.line = call('ZRANGE', queue.order, 0, -1) end
  local ids = {}
  for _, id in ipairs(queue.line) do
    if not queue.left[id] then ids[#ids + 1] = id end
  end
  return ids
end

-- The ids from one rank to another, both counted from 0 and within the queue; for a long queue also the stored ranks.
local function ids_at(queue, from, to)
  local tail = queue.tail and to == queue.count - 1 and queue.tail.id
  if tail then to = to - 1 end
  local ids, first = {}, nil
  if queue.line or queue.stored <= short then
    local line = short_line(queue)
    for rank = from, to do ids[#ids + 1] = line[rank + 1] end
  elseif from <= to then
    local more = fill_holes(queue, from >= queue.granted)
    first = stored_rank(queue, from + more)
    for index, id in ipairs(call('ZRANGE', queue.order, first, stored_rank(queue, to + more))) do
      if not queue.left[id] then
        ids[#ids + 1] = id
        ids[id] = first + index - 1
      end
    end
  end
  ids[#ids + 1] = tail or nil
  return ids
end

-- The places from one rank to another.
local function places_at(queue, from, to)
  local ids = ids_at(queue, from, to)
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
  for index, id in ipairs(ids) do
    places[index] = queue.places[id]
    places[index].rank = ids[id]
  end
  return places
end

local function append(queue, place)
  if queue.count == 0 then queue.capacity = place.capacity end
  queue.tail, queue.count = place, queue.count + 1
  if place.granted then queue.granted, queue.weight = queue.granted + 1, queue.weight + place.weight end
  put_place(queue, place)
end

local function remove(queue, place)
  queue.left[place.id], queue.away[#queue.away + 1] = true, place
  queue.count = queue.count - 1
  if place.granted then queue.granted, queue.weight = queue.granted - 1, queue.weight - place.weight end
  queue.places[place.id], queue.put[field_of(queue, place.id)] = nil, nil
end

-- Notes a line for a session. A script sends each session all its lines in one message.
local function tell(queue, session, line)
  queue.told[#queue.told + 1] = { session, line }
end

-- The numbers of holders and of waiters ahead of a waiter, by the order before any write.
local function ahead(queue, id)
  if not queue.several then return queue.granted, queue.count - queue.granted - 1 end
  if queue.line or queue.stored <= short then
    for rank, other in ipairs(short_line(queue)) do
      if other == id then return queue.granted, rank - 1 - queue.granted end
    end
  end
  fill_holes(queue)
  local rank = call('ZRANK', queue.order, id)
  if not rank then unlike(queue.order, 'another number of places than its record says') end
  return queue.granted, rank_without_holes(queue, rank) - queue.granted
end

-- The part of a place and of its owner that a listing shows.
local function row_of(place, owner)
  return {
    place.id, place.granted and 'g' or 'w', place.seq, place.weight, place.capacity, place.since, place.session,
    place.purpose, owner[1] or '', owner[2] or '', owner[3] or '',
  }
end

