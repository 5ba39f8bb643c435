-- Joins the queue of a name. This half: the checks, and the lock that nobody has or waits for.
-- KEYS: bucket, queue, session. ARGV: name, id, epoch, weight, capacity, wait, lease in ms, purpose.
local call = redis.call
local bucket, name, id = KEYS[1], ARGV[1], ARGV[2]
local epoch = call('HGET', KEYS[3], 'epoch')
if not epoch then return {'gone'} end
if tonumber(epoch) > tonumber(ARGV[3]) then return {'stale', epoch} end
local field = name .. '\n' .. id
local found = call('HMGET', bucket, '.', name, field)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local own_session = string.sub(KEYS[3], -16)

-- The number of a new place, its order and its token: the clock in 1/128 ms, and never one that was drawn before.
local function draw()
  local last, number = tonumber(found[1] or 0), time[1] * 128000 + math.floor(time[2] * 16 / 125)
  if not last then error('FLLAYOUT the last number of ' .. bucket .. ' is none', 0) end
  if last >= number then number = last + 1 end
  if number >= 2251799813685248 then error('FLLIMIT the numbers of ' .. bucket .. ' are used up', 0) end
  return string.format('%.0f', number)
end

if not found[2] and not found[3] then
  local seq = draw()
  local claim = ARGV[4] .. ' ' .. ARGV[5] .. ' '
  call('HSET', bucket, '.', seq, name, '1 1 ' .. claim .. '- 0 ' .. id, field,
    'g ' .. seq .. ' ' .. claim .. string.format('%.0f', now) .. ' ' .. ARGV[7] .. ' ' .. own_session .. ' ' .. ARGV[8])
  return {'granted', seq}
end
