-- KEYS: as for `try.lua`. Answers {} for a free lock, {kind} for a key that is no lock of this layout, else {type, field, digest, a
-- fencelock's text about itself, milliseconds left, the counter if there is one}. The digest names the grant of another
-- client; with the counter of a fenced lock, no later grant has it.
-- A read-write lock is {mode, then for each holder {field, digest, a fencelock's text about itself, milliseconds left}}.
local mode, fields = mode_of(KEYS[1]), of_hash('HLEN', KEYS[1])
if mode and fields > MOST then
  return {'hash of ' .. fields .. ' fields'}
elseif mode then
  local shown, left = {mode}, nil
  each_holder(KEYS[1], function(field, count)
    if mode == 'write' then
      -- A writer's field as a reader is a part of its grant.
      left = string.find(field, ':write$') and redis.call('PTTL', KEYS[1]) or -2
    else
      left = -2
      each_hold(KEYS[1], field, count, function(mark)
        left = math.max(left, redis.call('PTTL', mark))
      end)
    end
    if left ~= -2 then
      local said = redis.pcall('GETRANGE', holds(KEYS[1], field) .. '1', 0, 16383)
      said = type(said) == 'string' and said or ''
      shown[#shown + 1] = {string.sub(field, 1, 4096), redis.sha1hex(field .. ' '), said, left}
    end
  end)
  return shown
end
local kind = other(KEYS[1])
if kind == 'none' then
  return {}
elseif kind then
  return {kind}
end
local field, said = holder(KEYS[1])
local token, left = counted(KEYS[3]), redis.call('PTTL', KEYS[1])
return {'hash', string.sub(field, 1, 4096), redis.sha1hex(field .. ' ' .. token), said, left, token ~= '' and token or nil}
