-- What all scripts know about queues; put between the halves of a script. Expects: call, time.
--
-- A script reads all that it needs, computes on that, and writes at its end, in `finish` alone: a read that is refused
-- leaves nothing half done.
--
-- The record of a name is its only place, or else: places, granted places, their weight, capacity, what was checked, the
-- boundary and when it was set (ms). From when it was set and up to the boundary, nobody can be dead who keeps the first
-- waiter, or those behind it, from being granted. What was checked: nobody ('-'), all holders ('a'), as many holders as
-- leave no room for that weight ('f5'), or, where they are many, the holders up to that number so far ('p1234').
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local prefix
local lives, timeless, answered, queues, writes = {}, {}, {}, {}, {}
local decimal = '%.0f'
-- How many places a script looks at for being dead: what is left is for the next one, which comes in so many ms.
local budget, again = 1000, 20
-- A shorter queue than this is read as a whole.
local short = 8

local function unlike(key, what)
  error('FLLAYOUT ' .. key .. ' holds ' .. what .. ', which this layout does not know', 0)
end

-- Until when a session lives at least, in ms; false when it is dead. One without an end gets one, see `finish`.
local function lives_until(session)
  local known = lives[session]
  if known == nil then
    local left = call('PTTL', prefix .. session)
    if left == -1 then timeless[#timeless + 1] = session end
    -- A clock that went back leaves more than a ttl, until the next renewal; that may be the session's last. Seldom asked:
    -- where it went back by less than ten minutes, the dead may be waited for that long.
    if left > 600000 then left = math.min(left, tonumber(call('HGET', prefix .. session, 'ttl')) or left) end
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

-- Finds the ranks, as stored, of those that left: who is asked for by rank is behind them. Holders are ahead of every
-- waiter, so where a waiter is asked for it is enough to count them: that is what this answers.
local function fill_holes(queue, is_for_waiters)
  local away = queue.away
  queue.away = {}
  for _, place in ipairs(away) do
    local rank = place.rank
    if not rank and is_for_waiters and place.granted then
      queue.away[#queue.away + 1] = place
    else
      rank = rank or call('ZRANK', queue.order, place.id)
      if not rank then unlike(queue.order, 'another number of places than its record says') end
      local at = #queue.holes
      while at > 0 and queue.holes[at] > rank do at = at - 1 end
      table.insert(queue.holes, at + 1, rank)
    end
  end
  return #queue.away
end

-- The rank as stored of who has this rank now.
local function stored_rank(queue, rank)
  for _, hole in ipairs(queue.holes) do
    if hole > rank then break end
    rank = rank + 1
  end
  return rank
end

-- The ids of all places that are still there and were stored, of a short queue.
local function short_line(queue)
  if not queue.line then queue.line = call('ZRANGE', queue.order, 0, -1) end
  local ids = {}
  for _, id in ipairs(queue.line) do
    if not queue.left[id] then ids[#ids + 1] = id end
  end
  return ids
end

-- The ids from one rank to another, both counted from 0 and within the queue, and the ranks as stored of a long one.
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

-- Something to tell a session. All that one script has to tell it is one message.
local function tell(queue, session, line)
  queue.told[#queue.told + 1] = { session, line }
end

local function cover(queue, covers, boundary, mark)
  queue.covers, queue.boundary, queue.mark, queue.set = covers, boundary, mark or 0, now
end

-- Whether it is between when the boundary was set and the boundary. It is no fact before it was set: who was renewed
-- after the clock went back, and died, is gone sooner than it says.
local function is_within(queue)
  return queue.set <= now and now < queue.boundary
end

-- One more may be dead from then on who keeps others waiting.
local function narrow(queue, boundary)
  if not is_within(queue) then return cover(queue, '-', 0) end
  if boundary < queue.boundary then cover(queue, queue.covers, boundary, queue.mark) end
end

-- Grants the waiters that fit behind those that are granted already, the living ones, in their order.
local function settle(queue)
  local fresh, soonest, size = 0, math.huge, 1
  local full = false
  while not full and budget > 0 and queue.count > queue.granted and queue.weight < queue.capacity do
    for _, place in ipairs(places_at(queue, queue.granted, math.min(queue.granted + size, queue.count) - 1)) do
      local alive = lives_until(place.session)
      if not alive then
        remove(queue, place)
        budget = budget - 1
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
  if not full and budget <= 0 and queue.count > queue.granted and queue.weight < queue.capacity then
    cover(queue, '-', 0)
  elseif fresh == queue.weight and fresh > 0 then
    cover(queue, 'a', soonest)
  elseif soonest < math.huge then
    narrow(queue, soonest)
  end
end

-- Whether the boundary holds. Without waiters it is asked for a newcomer of `weight`.
local function is_covered(queue, weight)
  if not is_within(queue) then return false end
  if queue.covers == 'f' and queue.count == queue.granted then return weight and weight >= queue.mark end
  return queue.covers == 'a' or queue.covers == 'f'
end

-- The rank of the first holder that is to be looked at: where they are many, those before were, and live until the boundary.
local function unchecked(queue)
  if queue.covers ~= 'p' or not is_within(queue) then return 0, math.huge end
  fill_holes(queue)
  local rank = call('ZCOUNT', queue.order, '-inf', string.format(decimal, queue.mark))
  local passed = 0
  for _, hole in ipairs(queue.holes) do
    if hole < rank then passed = passed + 1 end
  end
  return rank - passed, queue.boundary
end

-- Removes dead holders until the living ones leave no room for `weight`; says what was checked, up to when that holds,
-- and what mark goes with it. Nothing when there is room.
local function check_holders(queue, weight)
  local rank, soonest = unchecked(queue)
  local from_front, taken, size, mark = rank == 0, 0, rank == 0 and 1 or 256, queue.mark
  while rank < queue.granted do
    if budget <= 0 then return 'p', soonest, mark end
    for _, place in ipairs(places_at(queue, rank, math.min(rank + math.min(size, budget), queue.granted) - 1)) do
      local alive = lives_until(place.session)
      budget = budget - 1
      if not alive then
        remove(queue, place)
      else
        rank, taken, soonest, mark = rank + 1, taken + place.weight, math.min(soonest, alive), tonumber(place.seq)
        if from_front and taken + weight > queue.capacity then
          if rank == queue.granted then return 'a', soonest end
          return 'f', soonest, weight
        end
      end
    end
    size = math.min(size * 4, 256)
  end
  if queue.weight + weight > queue.capacity then return 'a', soonest end
end

-- The first waiter that lives; the dead ones ahead of it are removed.
local function first_waiter(queue)
  while queue.count > queue.granted and budget > 0 do
    local size = queue.first_looks or 1
    for _, place in ipairs(places_at(queue, queue.granted, math.min(queue.granted + size, queue.count) - 1)) do
      local alive = lives_until(place.session)
      if alive then return place, alive end
      remove(queue, place)
      budget = budget - 1
    end
    queue.first_looks = math.min(size * 2, 64)
  end
end

-- Removes whoever is dead and keeps the first waiter from being granted, or without waiters a newcomer of `weight` (nil
-- for no newcomer), grants what can be granted, and sets the boundary.
local function sweep(queue, weight)
  while true do
    local first, alive = first_waiter(queue)
    local undecided = not first and queue.count > queue.granted
    local wanted = first and first.weight or weight
    if not undecided and not wanted then return end
    local covers, soonest, mark = 'p', math.huge, 0
    if not undecided then covers, soonest, mark = check_holders(queue, wanted) end
    if covers == 'p' and soonest == math.huge then soonest, mark = now + again, 0 end
    if covers then return cover(queue, covers, math.min(soonest, alive or math.huge), mark) end
    cover(queue, '-', 0)
    if not first then return end
    settle(queue)
  end
end

-- What follows from a departure, or from a claim that became lighter.
local function departed(queue)
  if queue.covers == 'f' then cover(queue, '-', 0) end
  settle(queue)
  if queue.count > queue.granted and not is_covered(queue) then sweep(queue) end
end

-- Removes who is dead from the front of the queue, up to the first one that lives.
local function bury_front(queue)
  while queue.count > 0 and budget > 0 do
    for _, place in ipairs(places_at(queue, 0, math.min(64, queue.count) - 1)) do
      if lives_until(place.session) then return departed(queue) end
      remove(queue, place)
      budget = budget - 1
    end
  end
  departed(queue)
end

-- In how many ms it is worth while to look again; -1 for never.
local function look_in(queue)
  if queue.covers == '-' then return -1 end
  if queue.covers == 'p' then return again end
  if now < queue.set then return 0 end
  return math.max(queue.boundary - now, 0)
end

local function record_of(queue)
  if queue.count == 1 then
    local only = places_at(queue, 0, 0)[1]
    queue.put[field_of(queue, only.id)] = nil
    if queue.several and only ~= queue.tail then queue.left[only.id] = true end
    return only.id .. ' ' .. text_of(only)
  end
  local mark = (queue.covers == 'f' or queue.covers == 'p') and string.format(decimal, queue.mark) or ''
  return string.format('%.0f %.0f %.0f %.0f %s%s %.0f %.0f', queue.count, queue.granted, queue.weight, queue.capacity,
    queue.covers, mark, queue.boundary, queue.set)
end

-- What is to be written of a queue; the last thing that reads.
local function plan(queue)
  if queue.planned then return end
  queue.planned = true
  local record = queue.count > 0 and record_of(queue)
  queue.gone, queue.out = {}, {}
  for id in pairs(queue.left) do
    queue.out[#queue.out + 1] = id
    if queue.several then queue.gone[#queue.gone + 1] = field_of(queue, id) end
  end
  if not record and queue.record then queue.gone[#queue.gone + 1] = queue.name end
  if record and record ~= queue.record then queue.put[queue.name] = record end
  queue.unordered = queue.several and queue.count < 2
  if queue.tail and queue.count > 1 then
    queue.added = { queue.tail.seq, queue.tail.id }
    if not queue.several then
      -- An order that is there already is left over from a bucket that was lost.
      queue.unordered = call('ZCARD', queue.order) > 0
      local only = places_at(queue, 0, 0)[1]
      put_place(queue, only)
      queue.added = { only.seq, only.id, queue.tail.seq, queue.tail.id }
    end
  end
end

local function in_parts(command, key, list)
  for from = 1, #list, 4000 do
    call(command, key, unpack(list, from, math.min(from + 3999, #list)))
  end
end

-- Removals come first: they are allowed without free memory, and everything after them is, too. Only an arrival may be
-- refused for want of memory, so where nothing is removed before other changes, nothing is "removed".
local function write(queue)
  local list = {}
  for field, text in pairs(queue.put) do
    list[#list + 1] = field
    list[#list + 1] = text
  end
  if queue.unordered then
    call('DEL', queue.order)
  elseif queue.several then
    in_parts('ZREM', queue.order, queue.out)
  end
  if #list > 0 and #queue.gone == 0 and not queue.tail then queue.gone[1] = field_of(queue, '') end
  in_parts('HDEL', queue.bucket, queue.gone)
  if queue.added then call('ZADD', queue.order, unpack(queue.added)) end
  in_parts('HSET', queue.bucket, list)
end

local function send()
  local letters = {}
  for _, queue in ipairs(queues) do
    local about = {}
    for _, told in ipairs(queue.told) do
      local session, line = told[1], told[2]
      if not letters[session] then
        letters[session] = {}
        letters[#letters + 1] = session
      end
      local letter = letters[session]
      if not about[session] then
        about[session], letter[#letter + 1] = true, 'n ' .. queue.name
      end
      letter[#letter + 1] = line
    end
  end
  for _, session in ipairs(letters) do call('PUBLISH', prefix .. session, table.concat(letters[session], '\n')) end
end

-- The only place that writes. Gives back what the last of the further `writes` answered. A session that somebody took
-- the end from lives on for its ttl: its client renews it, if there is one.
local function finish()
  local ends, answer = {}, nil
  for _, session in ipairs(timeless) do
    local ttl = redis.pcall('HGET', prefix .. session, 'ttl')
    ends[session] = type(ttl) == 'string' and tonumber(ttl) or 60000
  end
  for _, queue in ipairs(queues) do plan(queue) end
  for _, queue in ipairs(queues) do write(queue) end
  for _, words in ipairs(writes) do answer = call(unpack(words)) end
  for session, ttl in pairs(ends) do call('PEXPIRE', prefix .. session, ttl) end
  send()
  return answer
end

-- How many hold the lock and how many wait ahead of a waiter, as the order has it before anything is written.
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
  local passed = 0
  for _, hole in ipairs(queue.holes) do
    if hole < rank then passed = passed + 1 end
  end
  return queue.granted, rank - passed - queue.granted
end

-- What is shown of a place, and of who has it.
local function row_of(place, owner)
  return {
    place.id, place.granted and 'g' or 'w', place.seq, place.weight, place.capacity, place.since, place.lease,
    place.session, place.purpose, owner[1] or '', owner[2] or '', owner[3] or '',
  }
end

-- Whether somebody alive queues for a name; the dead ones in the way are removed.
local function is_in_use(bucket, name, record)
  local queue = open_queue(bucket, order_of(bucket, name), name, record)
  if queue.several then
    if not is_covered(queue, queue.capacity) then sweep(queue, queue.capacity) end
  else
    local only = places_at(queue, 0, 0)[1]
    if lives_until(only.session) then
      queues[#queues] = nil
      return true
    end
    remove(queue, only)
    budget = budget - 1
  end
  return queue.count > 0
end
