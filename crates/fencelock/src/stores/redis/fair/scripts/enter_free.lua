-- Joins the queue of a name. This half has the checks, and takes a lock whose queue is empty.
-- KEYS: bucket, session. ARGV: name, id, epoch, weight and capacity and 0 and session and purpose, and one
-- more not to wait.
local call, args = redis.call, ARGV
local bucket, name, id = KEYS[1], args[1], args[2]
local epoch = call('HGET', KEYS[2], 'epoch')
if epoch ~= args[3] then
  if not epoch then return {'gone'} end
  if tonumber(epoch) > tonumber(args[3]) then return {'stale', epoch} end
end
local found = call('HMGET', bucket, '.', name, '..')
local time = call('TIME')
-- The number of a new place, its order and its token: the clock in 1/128 ms, and never a number of before.
local last, ticks = tonumber(found[1] or 0), time[2] * 16
local number = time[1] * 128000 + (ticks - ticks % 125) / 125
if not last then return redis.error_reply('FLLAYOUT the last number of ' .. bucket .. ' is none') end
if last >= number then number = last + 1 end
-- 2^51: doubles are exact for the numbers below it, and for the results computed here.
local LIMIT = 2251799813685248
if number >= LIMIT then return redis.error_reply('FLLIMIT the numbers of ' .. bucket .. ' are used up') end
-- In two parts, which are integers everywhere; as one it would be written like any fraction, at three times the cost.
local low = number % 100000000
local seq = string.format('%d%08d', (number - low) / 100000000, low)
if not found[2] then
  local record = id .. ' g ' .. seq .. ' ' .. time[1] .. ':' .. time[2] .. ' ' .. args[4]
  -- A bucket is born with its first number: a place with a lower number is from a bucket that was lost.
  if found[3] then call('HSET', bucket, '.', seq, name, record)
  else call('HSET', bucket, '.', seq, '..', seq, name, record) end
  return number
end
