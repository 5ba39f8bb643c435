-- The outline of a queue: its length, its number of holders, the positions of the requested places, and the first holder.
-- Leaves out the dead at its front; dead contenders further behind count until a script clears them away. Writes nothing.
-- KEYS: bucket, queue. ARGV: name, prefix of session keys, ids.
prefix = ARGV[2]
local fields = { ARGV[1] }
for index = 3, #ARGV do fields[#fields + 1] = ARGV[1] .. '\n' .. ARGV[index] end
local found = call('HMGET', KEYS[1], unpack(fields))
local queue = open_queue(KEYS[1], KEYS[2], ARGV[1], found[1])
for index = 3, #ARGV do find(queue, ARGV[index], found[index - 1]) end
local dead, dead_holders, head = front(queue, 256)

local function position(id, text)
  if not text and (queue.several or not queue.places[id]) then return 0 end
  if not queue.several then return 1 end
  local holders, waiters = ahead(queue, id)
  return math.max(holders + waiters + 1 - dead, 1)
end

local reply = { queue.count - dead, queue.granted - dead_holders }
for index = 3, #ARGV do reply[index] = position(ARGV[index], found[index - 1]) end
if head and head.granted then
  reply[#reply + 1] = row_of(head, call('HMGET', prefix .. head.session, 'host', 'pid', 'client'))
end
return reply
