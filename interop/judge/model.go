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
}

// The holders: how much they have taken of which capacity, and the newest token of a whole claim.
type holders struct {
	taken, capacity uint64
	token           int64
}

var exclusion = porcupine.Model{
	Init: func() interface{} { return holders{token: math.MinInt64} },
	Step: func(of, input, _ interface{}) (bool, interface{}) {
		now, do := of.(holders), input.(step)
		if do.kind == 'l' {
			now.taken -= min(do.weight, now.taken)
			return true, now
		}
		possible := now.taken == 0 || now.capacity == do.capacity && now.taken+do.weight <= do.capacity
		if do.token != nil && do.weight == do.capacity {
			possible, now.token = possible && *do.token > now.token, *do.token
		}
		return possible, holders{now.taken + do.weight, do.capacity, now.token}
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
