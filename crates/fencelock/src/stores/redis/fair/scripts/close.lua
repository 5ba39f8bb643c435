-- Gives up places of one session, and with `last` the session itself.
-- KEYS: session, then bucket and queue of each name. ARGV: last, then for each name: the name, how many ids, the ids.
prefix = string.sub(KEYS[1], 1, -17)
local own_session = string.sub(KEYS[1], -16)
-- A session that ends here receives no grants any more.
if ARGV[1] == '1' then
  writes[1] = { 'DEL', KEYS[1] }
  lives[own_session] = false
end

local function give_up(bucket, order, name, ids)
  local fields = { name }
  for index, id in ipairs(ids) do fields[index + 1] = name .. '\n' .. id end
  local found = call('HMGET', bucket, unpack(fields))
  local queue = open_queue(bucket, order, name, found[1])
  for index, id in ipairs(ids) do
    local place = find(queue, id, found[index + 1])
    if place and place.session == own_session then remove(queue, place) end
  end
  departed(queue)
  plan(queue)
end

-- A name with damaged keys does not keep the others from being given up: its error comes at the end.
local at, broken = 2, nil
for index = 2, #KEYS, 2 do
  local name, count, ids = ARGV[at], tonumber(ARGV[at + 1]), {}
  for number = 1, count do ids[number] = ARGV[at + 1 + number] end
  at = at + 2 + count
  local opened = #queues
  local done, why = pcall(give_up, KEYS[index], KEYS[index + 1], name, ids)
  if not done then
    queues[opened + 1] = nil
    broken = why
  end
end
finish()
if broken then error(broken, 0) end
return 1
