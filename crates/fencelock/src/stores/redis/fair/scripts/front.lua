-- The front of a queue, for scripts that write nothing.

-- The number of dead contenders at the front, how many of them hold, and the first living one; looks at `most` places.
local function front(queue, most)
  local rank, holders, size, last = 0, 0, 1, math.min(queue.count, most)
  while rank < last do
    for _, place in ipairs(places_at(queue, rank, math.min(rank + size, last) - 1)) do
      if lives_until(place.session) then return rank, holders, place end
      rank, holders = rank + 1, holders + (place.granted and 1 or 0)
    end
    size = math.min(size * 4, 64)
  end
  return rank, holders, nil
end
