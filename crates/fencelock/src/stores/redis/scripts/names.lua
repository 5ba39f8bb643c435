-- The first names of some buckets that somebody alive queues for.
-- KEYS: buckets. ARGV: prefix of the names, the name before them ('' for none), how many, prefix of session keys.
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

local names = {}
for _, bucket in ipairs(KEYS) do
  for _, field in ipairs(call('HKEYS', bucket)) do
    local is_name = field ~= '.' and not string.find(field, '\n', 1, true)
    if is_name and string.sub(field, 1, #start) == start and precedes(from, field) then
      names[#names + 1] = { name = field, bucket = bucket }
    end
  end
end
if #names > limit then
  table.sort(names, function(one, other) return precedes(one.name, other.name) end)
end

local function is_in_use(bucket, name)
  local queue = open_queue(bucket, order_of(bucket, name), name, call('HGET', bucket, name))
  sweep(queue, queue.capacity)
  save(queue)
  return queue.count > 0
end

local used = {}
for _, found in ipairs(names) do
  if #used == limit then break end
  if is_in_use(found.bucket, found.name) then used[#used + 1] = found.name end
end
send()
return used
