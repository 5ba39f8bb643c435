package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// Waiters that are there before the memory of others is looked at.
const warmWaiters = 32

// workloads is what a benchmark measures, with all times taken in here.
type workloads struct {
	conn               *zk.Conn
	log                string
	kind, parent, name string
	gate               chan struct{}
	entrants           []chan sections
	held               []lock
}

// sections are three numbers per time that somebody had the lock, or the fault that ended them.
type sections struct {
	numbers []int64
	fault   error
}

func (w *workloads) obey(words []string) (string, error) {
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
func (w *workloads) lock(number ...int64) (lock, string, error) {
	name := w.name
	for _, n := range number {
		name += fmt.Sprintf("-%d", n)
	}
	return recipe(w.conn, w.kind, w.parent, name)
}

func (w *workloads) cycle(count int64) (string, error) {
	l, _, err := w.lock()
	if err != nil {
		return "", err
	}
	took := make([]int64, count)
	for i := range took {
		before := now()
		if err := l.acquire(); err != nil {
			return "", err
		}
		if err := l.release(); err != nil {
			return "", err
		}
		took[i] = now() - before
	}
	return "done", w.writeLog(took)
}

func (w *workloads) enter(index int64, hold bool) error {
	l, queue, err := w.lock()
	if err != nil {
		return err
	}
	before, err := w.queued(queue)
	if err != nil {
		return err
	}
	if hold {
		w.gate = make(chan struct{})
	}
	gate, held, done := w.gate, make(chan struct{}), make(chan sections, 1)
	w.entrants = append(w.entrants, done)
	go func() { done <- once(l, index, hold, gate, held) }()
	if hold {
		<-held
		return nil
	}
	for {
		if queued, err := w.queued(queue); err != nil || queued > before {
			return err
		}
	}
}

// once takes the lock once; one that holds tells that it has it, and keeps it until the gate opens.
func once(l lock, index int64, hold bool, gate, held chan struct{}) sections {
	err := l.acquire()
	acquired := now()
	close(held)
	if err != nil {
		return sections{fault: err}
	}
	if hold {
		<-gate
	}
	releasing := now()
	err = l.release()
	return sections{numbers: []int64{index, acquired, releasing}, fault: err}
}

func (w *workloads) queued(queue string) (int32, error) {
	there, stat, err := w.conn.Exists(queue)
	if err != nil || !there {
		return 0, err
	}
	return stat.NumChildren, nil
}

func (w *workloads) goOn() (string, error) {
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
	entrants := w.entrants
	w.entrants = nil
	return "done", w.collect(entrants)
}

func (w *workloads) contend(apart bool, numbers []int64) (string, error) {
	count, first, start, end := numbers[0], numbers[1], numbers[2], numbers[3]
	var tasks []chan sections
	for who := first; who < first+count; who++ {
		var suffix []int64
		if apart {
			suffix = []int64{who}
		}
		l, _, err := w.lock(suffix...)
		if err != nil {
			return "", err
		}
		done := make(chan sections, 1)
		tasks = append(tasks, done)
		go func(who int64) { done <- again(l, who, start, end) }(who)
	}
	return "done", w.collect(tasks)
}

func again(l lock, who, start, end int64) (all sections) {
	time.Sleep(time.Duration(start - now()))
	for {
		if err := l.acquire(); err != nil {
			return sections{fault: err}
		}
		acquired := now()
		if acquired < end {
			all.numbers = append(all.numbers, who, acquired, now())
		}
		if err := l.release(); err != nil {
			return sections{fault: err}
		}
		if acquired >= end {
			return all
		}
	}
}

func (w *workloads) hold(count, tasks int64) (string, error) {
	before, start := memory(), now()
	taken := make([][]lock, tasks)
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
	took := now() - start
	for _, some := range taken {
		w.held = append(w.held, some...)
	}
	return fmt.Sprintf("done before=%d after=%d took=%d", before, memory(), took), nil
}

// take takes every so many-th lock, beginning with number first.
func (w *workloads) take(first, count, step int64) ([]lock, error) {
	var taken []lock
	for number := first; number < count; number += step {
		l, _, err := w.lock(number)
		if err != nil {
			return nil, err
		}
		if err := l.acquire(); err != nil {
			return nil, err
		}
		taken = append(taken, l)
	}
	return taken, nil
}

func (w *workloads) wait(count int64) (string, error) {
	l, _, err := w.lock()
	if err != nil {
		return "", err
	}
	if err := l.acquire(); err != nil {
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

// memory is how many bytes are resident once what is garbage has gone.
func memory() int64 {
	runtime.GC()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

func (w *workloads) collect(tasks []chan sections) error {
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

func (w *workloads) writeLog(numbers []int64) error {
	bytes := make([]byte, 0, 8*len(numbers))
	for _, number := range numbers {
		bytes = binary.LittleEndian.AppendUint64(bytes, uint64(number))
	}
	return os.WriteFile(w.log, bytes, 0o644)
}
