-- The first names of some buckets that somebody alive queues for; those that the dead left are cleared away.
-- KEYS: buckets. ARGV: prefix of the names, the name before them ('' for none), how many, prefix of session keys.
-- Answers first whether there were too many dead ones for one call: then there are no names in the answer, and fewer dead
-- ones for the next call.
local start, from, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
prefix = ARGV[4]

-- By bytes: the operator asks the server's locale.
local function precedes(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then return a < b end
  end
  return #one < #other
end

local function wanted_of(bucket)
  local wanted = {}
  for _, field in ipairs(call('HKEYS', bucket)) do
    local is_name = field ~= '.' and field ~= '..' and not string.find(field, '\n', 1, true)
    if is_name and string.sub(field, 1, #start) == start and precedes(from, field) then wanted[#wanted + 1] = field end
  end
  return wanted
end

-- Whether somebody alive queues for a name; the dead ones in the way are removed.
local function is_in_use(bucket, name, record)
  local queue = open_queue(bucket, order_of(bucket, name), name, record)
  clear_way(queue)
  -- With most of them nothing is to be done.
  if not queue.several and queue.count > 0 and not next(queue.put) then queues[#queues] = nil end
  return queue.count > 0
end

-- The same; a name that is broken is listed among the others, and who asks for it is told.
local function is_listed(bucket, name, record)
  local opened = #queues
  local is_sound, is_used = pcall(function()
    local is_used = is_in_use(bucket, name, record)
    if queues[opened + 1] then plan(queues[opened + 1]) end
    return is_used
  end)
  if not is_sound then queues[opened + 1] = nil end
  return not is_sound or is_used
end

local used = {}
for _, bucket in ipairs(KEYS) do
  local wanted = wanted_of(bucket)
  for first = 1, #wanted, 1000 do
    local last = math.min(first + 999, #wanted)
    local records = call('HMGET', bucket, unpack(wanted, first, last))
    for index = first, last do
      if budget > 0 and is_listed(bucket, wanted[index], records[index - first + 1]) then used[#used + 1] = wanted[index] end
    end
  end
end
finish()
if budget <= 0 then return { 1 } end
if #used > limit then table.sort(used, precedes) end
return { 0, unpack(used, 1, math.min(limit, #used)) }
