-- The note on a lock, and the time.
-- KEYS: note.
return { time[1] .. ':' .. time[2], call('GET', KEYS[1]) }
