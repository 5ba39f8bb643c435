-- A queue in short: how many are in it, how many of them hold, the places of those who ask, and the first holder.
-- KEYS: bucket, queue. ARGV: name, prefix of session keys, ids.
prefix = ARGV[2]
local fields = { ARGV[1] }
for index = 3, #ARGV do fields[#fields + 1] = ARGV[1] .. '\n' .. ARGV[index] end
local found = call('HMGET', KEYS[1], unpack(fields))
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
-- Before the sweep, which may change them: what was read is what it goes by.
for index = 3, #ARGV do find(queue, ARGV[index], found[index - 1]) end
clear_way(queue)

local function position(id)
  if not queue.places[id] then return 0 end
  if not queue.several then return 1 end
  local holders, waiters = ahead(queue, id)
  return holders + waiters + 1
end

local reply = { queue.count, queue.granted }
for index = 3, #ARGV do reply[index] = position(ARGV[index]) end
if queue.granted > 0 then
  local head = places_at(queue, 0, 0)[1]
  reply[#reply + 1] = row_of(head, call('HMGET', prefix .. head.session, 'host', 'pid', 'client'))
end
finish()
return reply
