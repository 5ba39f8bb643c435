-- Before it stands whether a signal or a counter belongs to each lock, as the key after it.

-- Wakes one waiter of python-redis-lock, as its own release does. A server without memory left takes no signal, and the lock is free all the same.
local function signal(key)
  if signals then
    redis.pcall('DEL', key)
    redis.pcall('LPUSH', key, '1')
    redis.pcall('PEXPIRE', key, 1000)
  end
end

