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
	rank             int // When it was served: among all of its lock, or among those that enter in order.
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

// The entered contenders: `front` of them in the order in which they were served, and the ranks of later ones.
type entered struct {
	front int
	later []int
}

// The queue, of contenders in the order in which they were served. A contender enters behind all that were served before it, of those that
// exclude it. Every contender enters at some time, so a step past one of these is refused at once: the search would try each later order.
func order(all []step) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return entered{} },
		Step: func(of, input, _ interface{}) (bool, interface{}) {
			now, do := of.(entered), input.(step)
			at, _ := slices.BinarySearch(now.later, do.rank)
			for rank, next := now.front, 0; rank < do.rank; rank++ {
				if next < at && now.later[next] == rank {
					next++
				} else if other := all[rank]; other.capacity == do.capacity && other.weight+do.weight > do.capacity {
					return false, of
				}
			}
			now.later = slices.Insert(slices.Clone(now.later), at, do.rank)
			for len(now.later) > 0 && now.later[0] == now.front {
				now.front, now.later = now.front+1, now.later[1:]
			}
			return true, now
		},
		Equal: func(a, b interface{}) bool {
			one, other := a.(entered), b.(entered)
			return one.front == other.front && slices.Equal(one.later, other.later)
		},
	}
}
