-- Raises a counter of grants, or says only what it stands at. Answers its number, or nothing and why it counts nothing: then nothing has
-- changed.
local function count(counter, raises)
  local function ask(call)
    if raises then
      return call('INCR', counter)
    end
    return call('INCRBY', counter, '0')
  end
  local number = ask(redis.pcall)
  if type(number) ~= 'table' or not number.err then
    return number
  end
  for _, fault in ipairs({'WRONGTYPE', 'not an integer', 'would overflow'}) do
    if string.find(number.err, fault, 1, true) then
      return nil, fault == 'WRONGTYPE' and 'a ' .. redis.call('TYPE', counter).ok or fault
    end
  end
  -- What is wrong with the server or the user is told as it is.
  return ask(redis.call)
end

