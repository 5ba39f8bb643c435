-- Redisson's read-write lock, also a hash: a reader has its field there, the writer its field with `:write` behind it, and `mode` says
-- which. Each hold has a key of its own, `{N}:<field>:rwlock_timeout:<number>`. After a release, the rest of the hash lives as long as
-- the longest of these keys. Redisson writes `1` there; a fencelock writes its text about itself.

-- The most fields of a hash that a script reads, and the most holds of a field.
local MOST = 4096

-- The answer of a hash; nothing if the key is no hash. A user without the right to ask receives the error.
local function of_hash(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then
    return answer
  elseif not string.find(answer.err, 'WRONGTYPE', 1, true) then
    redis.call(...)
  end
end

-- 'read' or 'write' for a read-write lock, nothing for everything else.
local function mode_of(key)
  local mode = of_hash('HGET', key, 'mode')
  return (mode == 'read' or mode == 'write') and mode or nil
end

-- The keys of this field's holds, without the number.
local function holds(key, field)
  return (string.find(key, '{', 1, true) and key or '{' .. key .. '}') .. ':' .. field .. ':rwlock_timeout:'
end

-- Calls `see` with each of a field's holds, the newest first.
local function each_hold(key, field, count, see)
  for number = count, math.max(1, count - MOST), -1 do
    see(holds(key, field) .. number)
  end
end

-- Calls `see` with each holder's field and how often it holds.
local function each_holder(key, see)
  local pairs_of = redis.call('HGETALL', key)
  for at = 1, #pairs_of, 2 do
    local count = tonumber(pairs_of[at + 1])
    -- Excludes infinity, and counts that would keep the server busy.
    if pairs_of[at] ~= 'mode' and count and count < 2147483648 then
      see(pairs_of[at], count)
    end
  end
end

-- Wakes waiters for the lock: `0` one in each client of Redisson, `1` all of them, as there may be readers.
local function tell_shared(key, message)
  publish('redisson_rwlock:' .. (string.find(key, '{', 1, true) and key or '{' .. key .. '}'), message)
end

-- Ends this field's holds as a reader and as a writer. The others keep the lock for as long as their longest hold lives, as in
-- Redisson; without a living hold the lock is free.
local function let_go(key, mode, field)
  local longest, left, marks = -1, redis.call('PTTL', key), {}
  each_holder(key, function(other, count)
    if other == field or other == field .. ':write' then
      each_hold(key, other, count, function(mark)
        marks[#marks + 1] = mark
      end)
    elseif longest <= 0 or longest < left then
      -- The hash need not live longer than it does. Among many readers the first is as good as any.
      each_hold(key, other, count, function(mark)
        longest = math.max(longest, redis.call('PTTL', mark))
      end)
    end
  end)
  if longest > 0 then
    redis.call('HDEL', key, field, field .. ':write')
    redis.call('HSET', key, 'mode', 'read')
    redis.call('PEXPIRE', key, longest)
  else
    redis.call('DEL', key)
  end
  if longest <= 0 or mode == 'write' then
    tell_shared(key, mode == 'write' and '1' or '0')
  end
  for _, mark in ipairs(marks) do
    redis.call('DEL', mark)
  end
end

-- Our field in the lock under `key`, if it holds, and the lock's `mode`. A writer's field ends with `:write`.
local function our_hold(key, field)
  local has = of_hash('HMGET', key, field, field .. ':write', 'mode')
  if not has then
    return nil, nil
  end
  local mode = has[3]
  if mode == 'write' then
    return has[2] and field .. ':write', mode
  elseif mode == 'read' then
    return has[1] and field, mode
  end
  return has[1] and field, nil
end
