-- Clears away what dead sessions left in some buckets, a bounded number of names at a time.
-- KEYS: one that is there for a moment after this was done, buckets. ARGV: prefix of session keys, where the first bucket
-- was left off ('0' for its beginning), how many names.
-- Answers how many buckets were gone through, and where the next one was left off.
prefix = ARGV[1]
local at, left = ARGV[2], tonumber(ARGV[3])
-- However many clients there are, the server is asked for so much only five times a second.
if call('EXISTS', KEYS[1]) == 1 then return { 0, at } end

local function clear(bucket, name, record)
  local opened = #queues
  -- What is broken is told to who asks for it.
  local cleared = pcall(function()
    is_in_use(bucket, name, record)
    if queues[opened + 1] then plan(queues[opened + 1]) end
  end)
  if not cleared then queues[opened + 1] = nil end
end

-- One bucket, from where it was left off to its end, or until this has done enough.
local function go_through(bucket)
  repeat
    -- A key of another type is passed over.
    local page = redis.pcall('HSCAN', bucket, at, 'COUNT', 64)
    if page.err then page = { '0', {} } end
    local fields = page[2]
    for index = 1, #fields, 2 do
      local name = fields[index]
      local is_name = name ~= '.' and name ~= '..' and not string.find(name, '\n', 1, true)
      if is_name and budget > 0 then clear(bucket, name, fields[index + 1]) end
    end
    at, left = page[1], left - #fields / 2
  until at == '0' or left <= 0 or budget <= 0
end

local through = 0
for index = 2, #KEYS do
  go_through(KEYS[index])
  if at == '0' then through = through + 1 end
  if left <= 0 or budget <= 0 then break end
end
-- What comes after a removal is allowed without free memory.
writes = { { 'DEL', KEYS[1] }, { 'SET', KEYS[1], '', 'PX', 200 } }
finish()
return { through, at }
