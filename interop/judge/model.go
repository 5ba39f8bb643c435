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
	entered          int64
	granted, left    int64
}

// The holders, by their ranks, the newest token of a whole claim, the lapses that have been, and who was granted.
type holders struct {
	inside  []step
	token   int64
	over    []lapse
	granted entered
}

// Whether a holder from before the lapse may read of its grant so late, and believe in it for so long, although the lapse ended it.
func (now lapse) excuses(of step) bool {
	return of.granted <= now.By && of.left <= now.Until
}

// Whether the lapse was while the contender waited for an answer that it excuses.
func (now lapse) mayEnd(of step) bool {
	return of.entered <= now.Over && now.From <= of.granted && now.excuses(of)
}

// The grants of a lock, in the order of `all`. An earlier grant only excludes more, unless a lapse ends it: without a lapse to come, a
// contender is granted behind all that read of their grants before it.
func exclusion(all []step, lapses []lapse) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return holders{token: math.MinInt64} },
		Step: func(of, input, _ interface{}) (bool, interface{}) {
			now := of.(holders)
			if lapse, isLapse := input.(lapse); isLapse {
				now.inside = slices.DeleteFunc(slices.Clone(now.inside), lapse.excuses)
				now.over = append(slices.Clone(now.over), lapse)
				return true, now
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
			isEarly := slices.ContainsFunc(lapses, func(next lapse) bool {
				return next.mayEnd(do) && !slices.Contains(now.over, next)
			})
			before := func(other step) bool { return !isEarly && other.granted < do.granted }
			possible := now.granted.add(all, do.rank, before)
			taken := do.weight
			for _, other := range now.inside {
				taken += other.weight
			}
			possible = possible && (len(now.inside) == 0 || now.inside[0].capacity == do.capacity && taken <= do.capacity)
			if do.token != nil && do.weight == do.capacity {
				possible, now.token = possible && *do.token > now.token, *do.token
			}
			now.inside = slices.Insert(slices.Clone(now.inside), at, do)
			return possible, now
		},
		Equal: func(a, b interface{}) bool {
			one, other := a.(holders), b.(holders)
			return one.token == other.token && slices.Equal(one.inside, other.inside) &&
				slices.Equal(one.over, other.over) && one.granted.equals(other.granted)
		},
	}
}

// The contenders that took a step: `front` of them in the order in which they were served, and the ranks of later ones.
type entered struct {
	front int
	later []int
}

// Adds a contender. Returns whether it is behind all of lower rank that have to be `before` it.
func (now *entered) add(all []step, rank int, before func(step) bool) bool {
	at, _ := slices.BinarySearch(now.later, rank)
	for other, next := now.front, 0; other < rank; other++ {
		if next < at && now.later[next] == other {
			next++
		} else if before(all[other]) {
			return false
		}
	}
	now.later = slices.Insert(slices.Clone(now.later), at, rank)
	for len(now.later) > 0 && now.later[0] == now.front {
		now.front, now.later = now.front+1, now.later[1:]
	}
	return true
}

func (now entered) equals(other entered) bool {
	return now.front == other.front && slices.Equal(now.later, other.later)
}

// The queue, of contenders in the order in which they were served. A contender enters behind all that were served before it, of those that
// exclude it. Every contender enters at some time, so a step past one of these is refused at once: the search would try each later order.
func order(all []step) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return entered{} },
		Step: func(of, input, _ interface{}) (bool, interface{}) {
			now, do := of.(entered), input.(step)
			possible := now.add(all, do.rank, func(other step) bool {
				return other.capacity == do.capacity && other.weight+do.weight > do.capacity
			})
			return possible, now
		},
		Equal: func(a, b interface{}) bool { return a.(entered).equals(b.(entered)) },
	}
}
