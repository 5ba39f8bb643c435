-- What all other scripts of this layout begin with.

-- What is under a key that is no lock of this layout: its type, or what kind of hash it is; 'none' when the key is free, nothing when it is
-- such a lock. Redisson's read-write locks have a field `mode`, and so have the locks of fencelocks, where it says who they are.
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

-- The field of who holds a lock of this layout, and what a fencelock says of itself. Values of other hashes, however large, are not read.
local function holder(key)
  local holder = ''
  for _, field in ipairs(redis.call('HKEYS', key)) do
    holder = field == 'mode' and holder or field
  end
  return holder, redis.call('HGET', key, 'mode') or ''
end

-- What the counter of a fenced lock says; nothing for what counts nothing.
local function counted(counter)
  local number = counter and redis.pcall('GET', counter)
  return type(number) == 'string' and string.find(number, '^%d+$') and number or ''
end

-- Wakes who waits: as Redisson's lock does, and the first one who queues for its fair lock, whom that would not wake. A channel is called
-- as the queue is, but for what it begins with. The release stands whether or not it may be told. Answers how many were told.
local function tell(queue)
  local channel = 'redisson_lock__channel' .. string.sub(queue, #'redisson_lock_queue' + 1)
  local told = redis.pcall('PUBLISH', channel, '0')
  told = type(told) == 'number' and told or 0
  local first = redis.pcall('LINDEX', queue, 0)
  if type(first) == 'string' then
    redis.pcall('PUBLISH', channel .. ':' .. first, '0')
    -- Whether or not it hears that: it waits, and nobody of ours is in that queue.
    told = told + 2
  end
  return told
end
