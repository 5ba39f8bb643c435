// Package workloads has the loops that a benchmark measures, and takes all times.
package workloads

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Waiters that are there before the memory of others is looked at.
const warmWaiters = 32

// Lock is one contender's view of a lock: acquired once, then released, then perhaps acquired again.
type Lock interface {
	Acquire() error
	Release() error
	// Queued is the number of known contenders, which rises by one when a waiter has arrived.
	Queued() (int, error)
}

// Recipe makes a lock by its recipe, parent and name.
type Recipe func(kind, parent, name string) (Lock, error)

// Workloads are those of one lock after the other, as the order `use` has it.
type Workloads struct {
	recipe             Recipe
	log                string
	kind, parent, name string
	gate               chan struct{}
	entrants           []chan sections
	held               []Lock
}

// New is for the locks that recipe makes; times go to the file log.
func New(recipe Recipe, log string) *Workloads {
	return &Workloads{recipe: recipe, log: log}
}

// sections are three numbers for each hold of the lock, or the fault that ended them.
type sections struct {
	numbers []int64
	fault   error
}

// Obey does what an order says, and returns the answer.
func (w *Workloads) Obey(words []string) (string, error) {
	if words[0] == "use" && len(words) == 4 {
		w.kind, w.parent, w.name = words[1], words[2], words[3]
		return "done", nil
	}
	numbers := make([]int64, 0, len(words))
	for _, word := range words[1:] {
		number, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return "", err
		}
		numbers = append(numbers, number)
	}
	switch verb := words[0]; {
	case verb == "cycle" && len(numbers) == 1:
		return w.cycle(numbers[0])
	case verb == "enter" && len(numbers) == 2:
		return "in", w.enter(numbers[0], numbers[1] != 0)
	case verb == "go" && len(numbers) == 0:
		return w.goOn()
	case (verb == "contend" || verb == "spread") && len(numbers) == 4:
		return w.contend(verb == "spread", numbers)
	case verb == "hold" && len(numbers) == 2:
		return w.hold(numbers[0], numbers[1])
	case verb == "wait" && len(numbers) == 1:
		return w.wait(numbers[0])
	}
	return "", fmt.Errorf("no such order: %s", strings.Join(words, " "))
}

// lock makes the lock that the orders mean, or with a number its neighbour of that number.
func (w *Workloads) lock(number ...int64) (Lock, error) {
	name := w.name
	for _, n := range number {
		name += fmt.Sprintf("-%d", n)
	}
	return w.recipe(w.kind, w.parent, name)
}

func (w *Workloads) cycle(count int64) (string, error) {
	l, err := w.lock()
	if err != nil {
		return "", err
	}
	took := make([]int64, count)
	for i := range took {
		before := Now()
		if err := l.Acquire(); err != nil {
			return "", err
		}
		if err := l.Release(); err != nil {
			return "", err
		}
		took[i] = Now() - before
	}
	return "done", w.writeLog(took)
}

func (w *Workloads) enter(index int64, hold bool) error {
	l, err := w.lock()
	if err != nil {
		return err
	}
	before, err := l.Queued()
	if err != nil {
		return err
	}
	if hold {
		w.gate = make(chan struct{})
	}
	gate, held, done := w.gate, make(chan struct{}), make(chan sections, 1)
	w.entrants = append(w.entrants, done)
	go func() { done <- once(l, index, hold, gate, held) }()
	for {
		select {
		case found := <-done:
			// With the fault that kept it from waiting, perhaps.
			done <- found
			return found.fault
		case <-held:
			if hold {
				return nil
			}
		default:
		}
		if hold {
			continue
		}
		if queued, err := l.Queued(); err != nil || queued > before {
			return err
		}
	}
}

// once takes the lock once; a holder reports that it has the lock, and keeps it until the gate opens.
func once(l Lock, index int64, hold bool, gate, held chan struct{}) sections {
	err := l.Acquire()
	acquired := Now()
	close(held)
	if err != nil {
		return sections{fault: err}
	}
	if hold {
		<-gate
	}
	releasing := Now()
	err = l.Release()
	return sections{numbers: []int64{index, acquired, releasing}, fault: err}
}

func (w *Workloads) goOn() (string, error) {
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
	entrants := w.entrants
	w.entrants = nil
	return "done", w.collect(entrants)
}

func (w *Workloads) contend(apart bool, numbers []int64) (string, error) {
	count, first, start, end := numbers[0], numbers[1], numbers[2], numbers[3]
	var tasks []chan sections
	for who := first; who < first+count; who++ {
		var suffix []int64
		if apart {
			suffix = []int64{who}
		}
		l, err := w.lock(suffix...)
		if err != nil {
			return "", err
		}
		done := make(chan sections, 1)
		tasks = append(tasks, done)
		go func(who int64) { done <- again(l, who, start, end) }(who)
	}
	return "done", w.collect(tasks)
}

func again(l Lock, who, start, end int64) (all sections) {
	time.Sleep(time.Duration(start - Now()))
	for {
		if err := l.Acquire(); err != nil {
			return sections{fault: err}
		}
		acquired := Now()
		if acquired < end {
			all.numbers = append(all.numbers, who, acquired, Now())
		}
		if err := l.Release(); err != nil {
			return sections{fault: err}
		}
		if acquired >= end {
			return all
		}
	}
}

func (w *Workloads) hold(count, tasks int64) (string, error) {
	before, start := memory(), Now()
	taken := make([][]Lock, tasks)
	faults := make(chan error, tasks)
	for first := int64(0); first < tasks; first++ {
		go func(first int64) {
			var err error
			taken[first], err = w.take(first, count, tasks)
			faults <- err
		}(first)
	}
	for first := int64(0); first < tasks; first++ {
		if err := <-faults; err != nil {
			return "", err
		}
	}
	took := Now() - start
	for _, some := range taken {
		w.held = append(w.held, some...)
	}
	return fmt.Sprintf("done before=%d after=%d took=%d", before, memory(), took), nil
}

// take takes every so many-th lock, beginning with number first.
func (w *Workloads) take(first, count, step int64) ([]Lock, error) {
	var taken []Lock
	for number := first; number < count; number += step {
		l, err := w.lock(number)
		if err != nil {
			return nil, err
		}
		if err := l.Acquire(); err != nil {
			return nil, err
		}
		taken = append(taken, l)
	}
	return taken, nil
}

func (w *Workloads) wait(count int64) (string, error) {
	l, err := w.lock()
	if err != nil {
		return "", err
	}
	if err := l.Acquire(); err != nil {
		return "", err
	}
	w.held = append(w.held, l)
	var before int64
	for index := int64(0); index < warmWaiters+count; index++ {
		if index == warmWaiters {
			before = memory()
		}
		if err := w.enter(index, false); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("done before=%d after=%d", before, memory()), nil
}

// memory is the number of resident bytes after a collection of garbage.
func memory() int64 {
	runtime.GC()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

func (w *Workloads) collect(tasks []chan sections) error {
	var numbers []int64
	for _, task := range tasks {
		done := <-task
		if done.fault != nil {
			return done.fault
		}
		numbers = append(numbers, done.numbers...)
	}
	return w.writeLog(numbers)
}

func (w *Workloads) writeLog(numbers []int64) error {
	bytes := make([]byte, 0, 8*len(numbers))
	for _, number := range numbers {
		bytes = binary.LittleEndian.AppendUint64(bytes, uint64(number))
	}
	return os.WriteFile(w.log, bytes, 0o644)
}

// Now is the moment on the clock that all processes of a machine share.
func Now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}
