-- Clears away what dead sessions left in some buckets, a bounded number of fields at a time: names and places.
-- KEYS: one that is there for a moment after this was done, buckets. ARGV: prefix of session keys, where the first bucket
-- was left off ('0' for its beginning), how many fields.
-- Answers how many buckets were gone through, and where the next one was left off.
prefix = ARGV[1]
local at, left = ARGV[2], tonumber(ARGV[3])
-- However many clients there are, the server is asked for so much only five times a second.
if call('EXISTS', KEYS[1]) == 1 then return { 0, at } end

-- The queues in which somebody is dead, by name; false for what is broken, which is told to who asks for it.
local found = {}

local function queue_of(bucket, name)
  if found[name] == nil then
    found[name] = false
    found[name] = open_queue(bucket, order_of(bucket, name), name, call('HGET', bucket, name))
  end
  return found[name]
end

-- What one field of a bucket holds, if it is a place: the name, the id, the place as text. The record of a queue is one
-- where it is the only one.
local function place_in(field, text)
  local id, only = string.match(text, '^(%x+%-%x+) (.*)$')
  if id then return field, id, only end
  local name, own_id = string.match(field, '^([^\n]*)\n(.*)$')
  return name, own_id, text
end

-- Removes a place if its session is dead, wherever in its queue it is.
local function bury(bucket, field, text)
  local name, id, place = place_in(field, text)
  local session = name and string.match(place, '^[gw] %d+ %d+:%d+ %d+ %d+ %d+ (%x+) ')
  if not session or lives_until(session) then return end
  local queue = queue_of(bucket, name)
  if not queue or queue.left[id] then return end
  remove(queue, find(queue, id, queue.several and place))
  budget = budget - 1
end

-- One bucket, from where it was left off to its end, or until this has done enough.
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
-- What comes after a removal is allowed without free memory.
writes = { { 'DEL', KEYS[1] }, { 'SET', KEYS[1], '', 'PX', 200 } }
finish()
return { through, at }
