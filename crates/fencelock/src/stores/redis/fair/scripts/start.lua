-- What scripts begin with that have no shorter way.
local call = redis.call
local time = call('TIME')
