-- Goes on with a living session on another connection. KEYS: session. ARGV: ttl in ms.
if redis.call('PEXPIRE', KEYS[1], ARGV[1]) == 0 then return '' end
return string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'epoch', 1))
