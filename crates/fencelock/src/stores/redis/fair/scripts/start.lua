-- The beginning of every script without a short way of its own.
local call = redis.call
local time = call('TIME')
