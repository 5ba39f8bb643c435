-- KEYS: a key of this node, or none.
for tag = 0, 16383 do
  local key = KEYS[1] or 'fencelock:breaks:{' .. tag .. '}:replicas'
  local done = redis.pcall('DEL', key)
  if type(done) == 'number' then
    return redis.call('SET', key, '', 'PX', 60000)
  elseif not string.find(done.err, 'non local', 1, true) then
    return done
  end
end
