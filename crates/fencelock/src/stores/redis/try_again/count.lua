-- Raises a counter of grants, or only reads it. Answers its number, or nothing and why it is no counter: then nothing has changed.
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
  -- Other errors concern the server or the user, and reach the client.
  return ask(redis.call)
end

