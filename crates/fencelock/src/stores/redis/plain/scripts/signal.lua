-- The line before this part says whether each lock has a signal or a counter, as the key after its own.

-- Wakes one waiter of python-redis-lock, as its own release does. A server without free memory takes no signal; the lock is free even so.
local function signal(key)
  if signals then
    redis.pcall('DEL', key)
    redis.pcall('LPUSH', key, '1')
    redis.pcall('PEXPIRE', key, 1000)
  end
end

