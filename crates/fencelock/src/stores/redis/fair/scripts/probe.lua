-- Says what this user may not do that the other scripts do, and does nothing: there is nothing in these places, and what
-- would write something is asked of the layout key, which is of another type.
-- KEYS: session, bucket, order of a queue, breaks, layout. ARGV: version, and anything for one who only looks.
-- Answers the version that is there, then commands, each with what the server said.
local session, bucket, order, breaks, layout = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local version = redis.call('GET', layout)
if version and version ~= ARGV[1] then return { version } end
local said = { ARGV[1] }
local function may(command, ...)
  local answer = redis.pcall(command, ...)
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'WRONGTYPE', 1, true) then
    said[#said + 1] = command
    said[#said + 1] = answer.err
  end
end
may('TIME')
may('HGET', session, 'epoch')
may('PTTL', session)
may('HMGET', bucket, '')
may('HSCAN', breaks, '0')
may('ZRANGE', order, '0', '-1')
may('ZRANK', order, '')
may('ZCOUNT', order, '0', '0')
may('LRANGE', breaks, '0', '-1')
if ARGV[2] then return said end
may('HLEN', session)
may('HGETALL', session)
may('EXISTS', session)
may('ZCARD', order)
may('PUBLISH', session, '')
may('DEL', order)
may('HDEL', bucket, '')
may('ZREM', order, '')
may('ZADD', order, 'XX', '0', '')
may('LTRIM', breaks, '0', '-1')
may('PEXPIRE', breaks, '1')
if #said > 1 then return said end
if not version then may('SET', layout, ARGV[1]) end
if #said > 1 then return said end
may('HSET', layout, '', '')
may('HINCRBY', layout, '', '1')
may('RPUSH', layout, '')
return said
