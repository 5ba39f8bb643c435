-- Resumes a living session on another connection. KEYS: session. ARGV: ttl in ms.
if not redis.call('HGET', KEYS[1], 'epoch') then return '' end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'epoch', 1))
