-- The beginning of all other scripts of this layout.

-- The type of a key that is no lock of this layout, or its kind of hash; 'none' for a free key, nothing for a lock of this layout.
-- Redisson's read-write locks have a field `mode`, and so have fencelocks' locks, with the text about their holder in it.
local function other(key)
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'hash' then
    return kind
  end
  local length, fields = redis.call('HSTRLEN', key, 'mode'), redis.call('HLEN', key)
  local mode = (length == 4 or length == 5) and redis.call('HGET', key, 'mode')
  if mode == 'read' or mode == 'write' then
    return 'hash of a read-write lock'
  elseif fields > (length > 0 and 2 or 1) then
    return 'hash of ' .. fields .. ' fields'
  elseif length > 16384 then
    return 'hash of a large field'
  end
end

-- The holder's field of a lock of this layout, and a fencelock's text about itself. Values of other hashes may be large, and are not read.
local function holder(key)
  local holder = ''
  for _, field in ipairs(redis.call('HKEYS', key)) do
    holder = field == 'mode' and holder or field
  end
  return holder, redis.call('HGET', key, 'mode') or ''
end

-- The counter of a fenced lock; nothing for a value that is no number.
local function counted(counter)
  local number = counter and redis.pcall('GET', counter)
  return type(number) == 'string' and string.find(number, '^%d+$') and number or ''
end

-- Publishes a release. Redis 6 knows no sharded channels. The release stands even if publishing fails. Answers the number of receivers.
local function publish(channel, message)
  if sharded then
    redis.pcall('SPUBLISH', channel, message)
  end
  local told = redis.pcall('PUBLISH', channel, message)
  return type(told) == 'number' and told or 0
end

-- Wakes waiters: as Redisson's lock does, and also the first in the queue of its fair lock, which that would not wake. The channel has
-- the name of the queue, after another prefix. Answers the number of receivers.
local function tell(queue)
  local channel = 'redisson_lock__channel' .. string.sub(queue, #'redisson_lock_queue' + 1)
  local told = publish(channel, '0')
  local first = redis.pcall('LINDEX', queue, 0)
  if type(first) == 'string' then
    publish(channel .. ':' .. first, '0')
    -- Counted even if it does not receive that: another client waits, for no fencelock is in that queue.
    told = told + 2
  end
  return told
end
