-- Joins the queue of a name. This half: the checks, and the lock that nobody has or waits for.
-- KEYS: bucket, queue, session. ARGV: name, id, epoch, weight and capacity, wait, lease in ms and session and purpose.
local call, args = redis.call, ARGV
local bucket, name, id, claim = KEYS[1], args[1], args[2], args[4]
local epoch = call('HGET', KEYS[3], 'epoch')
if epoch ~= args[3] then
  if not epoch then return {'gone'} end
  if tonumber(epoch) > tonumber(args[3]) then return {'stale', epoch} end
end
local found = call('HMGET', bucket, '.', name)
local time = call('TIME')
-- The number of a new place, its order and its token: the clock in 1/128 ms, and never one that was drawn before.
local last, ticks = tonumber(found[1] or 0), time[2] * 16
local number = time[1] * 128000 + (ticks - ticks % 125) / 125
if not last then return redis.error_reply('FLLAYOUT the last number of ' .. bucket .. ' is none') end
if last >= number then number = last + 1 end
if number >= 2251799813685248 then return redis.error_reply('FLLIMIT the numbers of ' .. bucket .. ' are used up') end
local seq = string.format('%.0f', number)
if not found[2] then
  call('HSET', bucket, '.', seq, name,
    id .. ' g ' .. seq .. ' ' .. claim .. ' ' .. time[1] .. ':' .. time[2] .. ' ' .. args[6])
  return {'granted', seq}
end
