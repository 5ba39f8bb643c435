-- The rule, for all scripts: finds dead sessions, grants waiters, and sets the boundary up to which a queue needs no look.

local function cover(queue, covers, boundary, mark)
  queue.covers, queue.boundary, queue.mark, queue.set = covers, boundary, mark or 0, now
end

-- Whether the clock is between the setting of the boundary and the boundary. Before the setting a boundary is no fact: a session
-- that was renewed after the clock went back, and died, is gone sooner than the boundary says.
local function is_within(queue)
  return queue.set <= now and now < queue.boundary
end

-- From now on no holder counts as checked. Among many holders, the mark stays, so that the check can continue.
local function lapse(queue)
  if queue.covers == 'p' then cover(queue, 'p', 0, queue.mark) else cover(queue, '-', 0) end
end

-- From `boundary` on a further contender that blocks others may be dead.
local function narrow(queue, boundary)
  if not is_within(queue) then return lapse(queue) end
  if boundary < queue.boundary then cover(queue, queue.covers, boundary, queue.mark) end
end

-- Grants the living waiters that fit behind the granted places, in their order.
local function settle(queue)
  local fresh, soonest, size = 0, math.huge, 1
  local full = false
  while not full and budget > 0 and queue.count > queue.granted and queue.weight < queue.capacity do
    for _, place in ipairs(places_at(queue, queue.granted, math.min(queue.granted + size, queue.count) - 1)) do
      local alive = lives_until(place.session)
      if not alive then
        remove(queue, place)
        budget = budget - 1
      else
        soonest = math.min(soonest, alive)
        full = queue.weight + place.weight > queue.capacity
        if full then break end
        place.granted, place.since = true, time[1] .. ':' .. time[2]
        queue.granted, queue.weight, fresh = queue.granted + 1, queue.weight + place.weight, fresh + place.weight
        put_place(queue, place)
        if not answered[field_of(queue, place.id)] then
          tell(queue, place.session, 'g ' .. place.id .. ' ' .. place.seq)
        end
        if queue.weight == queue.capacity then break end
      end
    end
    size = math.min(size * 2, 64)
  end
  if not full and budget <= 0 and queue.count > queue.granted and queue.weight < queue.capacity then
    lapse(queue)
  elseif fresh == queue.weight and fresh > 0 then
    cover(queue, 'a', soonest)
  elseif soonest < math.huge then
    narrow(queue, soonest)
  end
end

-- Whether the boundary holds. Without waiters, the answer is for a newcomer of `weight`.
local function is_covered(queue, weight)
  if not is_within(queue) then return false end
  if queue.covers == 'f' and queue.count == queue.granted then return weight and weight >= queue.mark end
  return queue.covers == 'a' or queue.covers == 'f'
end

-- The rank of the first holder to check, the number of the last checked one, and up to when the checked ones live: 0 when that
-- time has passed.
local function unchecked(queue)
  if queue.covers ~= 'p' or queue.mark == 0 then return 0, 0, math.huge end
  fill_holes(queue)
  local rank = call('ZCOUNT', queue.order, '-inf', string.format(decimal, queue.mark))
  return rank_without_holes(queue, rank), queue.mark, is_within(queue) and queue.boundary or 0
end

-- Removes dead holders until there is room for `weight`, and returns true then; or until the living ones leave no room. Sets
-- the checked holders and the boundary.
local function check_holders(queue, weight)
  local rank, mark, soonest = unchecked(queue)
  local from_front, taken, size = mark == 0, 0, mark == 0 and 1 or 256
  while queue.weight + weight > queue.capacity do
    if rank >= queue.granted and soonest > 0 then return cover(queue, 'a', soonest) end
    -- The state of the holders before its start is unknown by now: the check starts again at the front.
    if rank >= queue.granted then rank, mark, soonest, from_front, size = 0, 0, math.huge, true, 1 end
    if budget <= 0 then return cover(queue, 'p', mark > 0 and soonest or 0, mark) end
    for _, place in ipairs(places_at(queue, rank, math.min(rank + math.min(size, budget), queue.granted) - 1)) do
      local alive = lives_until(place.session)
      budget = budget - 1
      if not alive then
        remove(queue, place)
      else
        rank, mark, soonest = rank + 1, tonumber(place.seq), math.min(soonest, alive)
        if from_front then taken = taken + place.weight end
        if from_front and taken + weight > queue.capacity and rank < queue.granted then
          return cover(queue, 'f', soonest, weight)
        end
      end
    end
    size = math.min(size * 4, 256)
  end
  cover(queue, mark > 0 and 'p' or '-', mark > 0 and soonest or 0, mark)
  return true
end

-- The first waiter that lives; the dead ones ahead of it are removed.
local function first_waiter(queue)
  while queue.count > queue.granted and budget > 0 do
    local size = queue.first_looks or 1
    for _, place in ipairs(places_at(queue, queue.granted, math.min(queue.granted + size, queue.count) - 1)) do
      local alive = lives_until(place.session)
      if alive then return place, alive end
      remove(queue, place)
      budget = budget - 1
    end
    queue.first_looks = math.min(size * 2, 64)
  end
end

-- Removes the dead contenders that block the first waiter, or without waiters a newcomer of `weight` (nil for no newcomer),
-- grants waiters, and sets the boundary.
local function sweep(queue, weight)
  while true do
    local first, alive = first_waiter(queue)
    if not first and queue.count > queue.granted then
      return cover(queue, 'p', 0, queue.covers == 'p' and queue.mark or 0)
    end
    local wanted = first and first.weight or weight
    if not wanted then return end
    if not check_holders(queue, wanted) then
      queue.boundary = math.min(queue.boundary, alive or math.huge)
      return
    end
    if not first then return end
    settle(queue)
  end
end

-- Grants waiters and sets the boundary after a departure, or after a claim became lighter.
local function departed(queue)
  if queue.covers == 'f' then lapse(queue) end
  settle(queue)
  if queue.count > queue.granted and not is_covered(queue) then sweep(queue) end
end

-- Removes dead contenders from the front of the queue, up to the first living one.
local function bury_front(queue)
  local size, before, found = 1, queue.count, false
  while not found and queue.count > 0 and budget > 0 do
    for _, place in ipairs(places_at(queue, 0, math.min(size, queue.count) - 1)) do
      found = lives_until(place.session)
      if found then break end
      remove(queue, place)
      budget = budget - 1
    end
    size = math.min(size * 4, 64)
  end
  if queue.count < before then
    departed(queue)
  elseif queue.count > queue.granted and not is_covered(queue) then
    sweep(queue)
  end
end

-- The ms until the next look is useful; -1 for never.
local function look_in(queue)
  if queue.covers == '-' then return -1 end
  if queue.covers == 'p' then return again end
  if now < queue.set then return 0 end
  return math.max(queue.boundary - now, 0)
end

