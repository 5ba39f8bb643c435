-- The writes of a script, all at its end.

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

-- Plans the writes for a queue. The last part of a script that reads.
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
      -- An order that exists already is left over from a lost bucket.
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

-- Removals come first: the server allows them without free memory, and all writes after them, too. Only an arrival may be
-- refused for want of memory, so every other change begins with a removal, of an absent field if need be.
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

-- The only function that writes. Returns the answer of the last of the further `writes`. A session without an end (PERSIST), or with
-- more than its ttl after the clock went back, lives for its ttl from now: its client renews it, if there is one.
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
