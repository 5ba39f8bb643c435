-- Clears away remains of dead sessions in some buckets, a bounded number of fields at a time: names and places.
-- KEYS: a key that exists for a moment after each call, buckets. ARGV: prefix of session keys, the cursor in the first
-- bucket ('0' for its beginning), how many fields.
-- Answers the number of finished buckets, and the cursor in the next one.
prefix = ARGV[1]
local at, left = ARGV[2], tonumber(ARGV[3])
-- All clients together get this work from the server five times a second at most.
if call('EXISTS', KEYS[1]) == 1 then return { 0, at } end

-- The queues with dead contenders, by name; false for a damaged queue, whose own clients receive the error.
local found = {}

local function queue_of(bucket, name)
  if found[name] == nil then
    found[name] = false
    found[name] = open_queue(bucket, order_of(bucket, name), name, call('HGET', bucket, name))
  end
  return found[name]
end

-- Reads a field of a bucket that is a place: the name, the id, the place as text. The record of a queue is a place if it is
-- the only one.
local function place_in(field, text)
  local id, only = string.match(text, '^(%x+%-%x+) (.*)$')
  if id then return field, id, only end
  local name, own_id = string.match(field, '^([^\n]*)\n(.*)$')
  return name, own_id, text
end

-- Removes a place if its session is dead, at any position of its queue.
local function bury(bucket, field, text)
  local name, id, place = place_in(field, text)
  local session = name and string.match(place, '^[gw] %d+ %d+:%d+ %d+ %d+ %d+ (%x+) ')
  if not session or lives_until(session) then return end
  local queue = queue_of(bucket, name)
  if not queue or queue.left[id] then return end
  remove(queue, find(queue, id, queue.several and place))
  budget = budget - 1
end

-- Goes through a bucket, from the cursor to its end, or until the budget is used up.
local function go_through(bucket)
  repeat
    -- A key of another type is passed over.
    local page = redis.pcall('HSCAN', bucket, at, 'COUNT', 64)
    if page.err then page = { '0', {} } end
    local fields = page[2]
    for index = 1, #fields, 2 do pcall(bury, bucket, fields[index], fields[index + 1]) end
    at, left = page[1], left - #fields / 2
  until at == '0' or left <= 0 or budget <= 0
end

local through = 0
for index = 2, #KEYS do
  go_through(KEYS[index])
  if at == '0' then through = through + 1 end
  if left <= 0 or budget <= 0 then break end
end
local sound = {}
for _, queue in pairs(found) do
  local is_sound = queue and pcall(function()
    departed(queue)
    plan(queue)
  end)
  if is_sound then sound[#sound + 1] = queue end
end
queues = sound
-- After a removal the server allows writes without free memory.
writes = { { 'DEL', KEYS[1] }, { 'SET', KEYS[1], '', 'PX', 200 } }
finish()
return { through, at }
