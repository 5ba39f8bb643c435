-- KEYS: the lock, the records of its breaks, the queue of its fair lock, and of a fenced lock the counter.
-- ARGV: the field if it is ours, the digest if it is another client's, the record, the token or nothing.
for _, record in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if record == ARGV[3] then
    return 1
  end
end
local function is_meant(field, token)
  local is_ours = field == ARGV[1] or field == ARGV[1] .. ':write'
  return is_ours or string.sub(redis.sha1hex(field .. ' ' .. token), 1, 32) == ARGV[2]
end
local function record()
  redis.call('RPUSH', KEYS[2], ARGV[3])
  redis.call('LTRIM', KEYS[2], -128, -1)
  redis.call('PEXPIRE', KEYS[2], 2592000000)
end
local mode, meant = mode_of(KEYS[1]), nil
if mode then
  each_holder(KEYS[1], function(field)
    -- A writer's field as a reader is no grant of its own.
    local is_grant = mode == 'read' or string.find(field, ':write$')
    meant = is_grant and is_meant(field, '') and field or meant
  end)
  if not meant or ARGV[4] ~= '' then
    return 0
  end
  record()
  let_go(KEYS[1], mode, (string.gsub(meant, ':write$', '')))
  return 1
end
if other(KEYS[1]) then
  return 0
end
local token = counted(KEYS[4])
if ARGV[4] ~= '' and token ~= ARGV[4] then
  return 0
end
if not is_meant(holder(KEYS[1]), token) then
  return 0
end
-- The record first: every break has one, even if the server's memory is used up.
record()
redis.call('DEL', KEYS[1])
tell(KEYS[3])
return 1
