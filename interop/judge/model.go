// The model: a fenced first-come lock, as two machines that each lock has.
package main

import (
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

type step struct {
	kind             byte // 'g'rant, 'l'eave, 'e'nter
	weight, capacity uint64
	token            *int64
	rank             int // When it was served, among all of its lock.
	granted, left    int64
}

// The holders, by their ranks, and the newest token of a whole claim.
type holders struct {
	inside []step
	token  int64
}

// Whether a holder from before the lapse may read of its grant so late, and believe in it for so long, although the lapse ended it.
func (now lapse) excuses(granted, left int64) bool {
	return granted <= now.By && left <= now.Until
}

var exclusion = porcupine.Model{
	Init: func() interface{} { return holders{token: math.MinInt64} },
	Step: func(of, input, _ interface{}) (bool, interface{}) {
		now := of.(holders)
		if lapse, isLapse := input.(lapse); isLapse {
			ended := func(of step) bool { return lapse.excuses(of.granted, of.left) }
			return true, holders{slices.DeleteFunc(slices.Clone(now.inside), ended), now.token}
		}
		do := input.(step)
		at, isInside := slices.BinarySearchFunc(now.inside, do.rank, func(of step, rank int) int { return of.rank - rank })
		if do.kind == 'l' {
			// A lapse may have ended the hold before.
			if isInside {
				now.inside = slices.Delete(slices.Clone(now.inside), at, at+1)
			}
			return true, now
		}
		taken := do.weight
		for _, other := range now.inside {
			taken += other.weight
		}
		possible := len(now.inside) == 0 || now.inside[0].capacity == do.capacity && taken <= do.capacity
		if do.token != nil && do.weight == do.capacity {
			possible, now.token = possible && *do.token > now.token, *do.token
		}
		return possible, holders{slices.Insert(slices.Clone(now.inside), at, do), now.token}
	},
	Equal: func(a, b interface{}) bool {
		one, other := a.(holders), b.(holders)
		return one.token == other.token && slices.Equal(one.inside, other.inside)
	},
}

// The queue: for each kind of claim that entered, the last one to be served. A contender enters behind all that were served before it,
// of those that exclude it.
var order = porcupine.Model{
	Init: func() interface{} { return []step(nil) },
	Step: func(of, input, _ interface{}) (bool, interface{}) {
		now, do := slices.Clone(of.([]step)), input.(step)
		known := -1
		for i, other := range now {
			if other.capacity == do.capacity && other.weight+do.weight > do.capacity && other.rank > do.rank {
				return false, of
			}
			if other.capacity == do.capacity && other.weight == do.weight {
				known = i
			}
		}
		if known < 0 {
			return true, append(now, do)
		}
		now[known].rank = max(now[known].rank, do.rank)
		return true, now
	},
	Equal: func(a, b interface{}) bool { return slices.Equal(a.([]step), b.([]step)) },
}
