-- Names of some buckets with living contenders, a bounded number of fields at a time. Writes nothing.
-- KEYS: buckets. ARGV: prefix of the names, prefix of session keys, the cursor in the first bucket ('0' for its
-- beginning), how many fields.
-- Answers the number of finished buckets, the cursor in the next one, the names, and the buckets that are keys of another
-- type; a name may come twice.
local start, at, left = ARGV[1], ARGV[3], tonumber(ARGV[4])
prefix = ARGV[2]

-- Whether a name has living contenders, or may have: behind many dead ones a contender may live.
local function is_in_use(bucket, name, record)
  local queue = open_queue(bucket, order_of(bucket, name), name, record)
  local dead, _, living = front(queue, 64)
  left = left - dead
  return living or dead < queue.count
end

local used = {}

local function look_at(bucket, field, record)
  local is_name = field ~= '.' and field ~= '..' and not string.find(field, '\n', 1, true)
  if not is_name or string.sub(field, 1, #start) ~= start then return end
  local is_sound, is_used = pcall(is_in_use, bucket, field, record)
  -- A name with damaged keys is listed among the others: a client that asks for it receives the error.
  if not is_sound or is_used then used[#used + 1] = field end
end

local through, foreign = 0, {}
for _, bucket in ipairs(KEYS) do
  repeat
    -- A key of another type is no bucket of ours, and must not hide the names in the others.
    local page = redis.pcall('HSCAN', bucket, at, 'COUNT', 64)
    if page.err then
      if not string.find(page.err, 'WRONGTYPE', 1, true) then error(page.err, 0) end
      page, foreign[#foreign + 1] = { '0', {} }, bucket
    end
    local fields = page[2]
    for index = 1, #fields, 2 do look_at(bucket, fields[index], fields[index + 1]) end
    at, left = page[1], left - #fields / 2
  until at == '0' or left <= 0
  if at == '0' then through = through + 1 end
  if left <= 0 then break end
end
return { through, at, used, foreign }
