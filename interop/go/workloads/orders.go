package workloads

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Patient is a lock with a limit for its wait.
type Patient interface {
	AcquireWithin(wait time.Duration) (bool, error)
}

// Order does what the words of an order say, and returns the answer.
type Order func(words []string) (string, error)

// Orders are those that every driver takes, a benchmark's among them.
type Orders struct {
	recipe    Recipe
	version   func() string
	workloads *Workloads
	held      map[int]Lock
	handles   int
}

// NewOrders is for the locks that recipe makes; times go to the file log.
func NewOrders(recipe Recipe, version func() string, log string) *Orders {
	return &Orders{recipe: recipe, version: version, workloads: New(recipe, log), held: map[int]Lock{}}
}

// Serve answers orders until stdin ends. Those in more are a driver's own.
func (o *Orders) Serve(more map[string]Order) error {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := o.answer(strings.Split(lines.Text(), " "), more)
		if err != nil {
			answer = "failed " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
	return lines.Err()
}

func (o *Orders) answer(words []string, more map[string]Order) (string, error) {
	if order, ok := more[words[0]]; ok {
		return order(words)
	}
	switch words[0] {
	case "version":
		return "done " + o.version(), nil
	case "acquire":
		return o.acquire(words[1:])
	case "release":
		return o.release(words[1])
	case "end":
		handle, err := strconv.Atoi(words[1])
		delete(o.held, handle)
		return "done", err
	case "count":
		return o.count(words[1:])
	}
	return o.workloads.Obey(words)
}

func (o *Orders) acquire(words []string) (string, error) {
	l, err := o.recipe(words[0], words[1], words[2])
	if err != nil {
		return "", err
	}
	waitMs, err := strconv.Atoi(words[3])
	if err != nil {
		return "", err
	}
	acquired, err := acquireWithin(l, time.Duration(waitMs)*time.Millisecond)
	at := Now()
	if err != nil {
		return "", err
	}
	if !acquired {
		return "busy", nil
	}
	o.handles++
	o.held[o.handles] = l
	return fmt.Sprintf("done handle=%d at=%d", o.handles, at), nil
}

func (o *Orders) release(word string) (string, error) {
	handle, err := strconv.Atoi(word)
	if err != nil {
		return "", err
	}
	l, ok := o.held[handle]
	if !ok {
		return "", fmt.Errorf("no such handle: %d", handle)
	}
	delete(o.held, handle)
	at := Now()
	if err := l.Release(); err != nil {
		return "", err
	}
	return fmt.Sprintf("done at=%d", at), nil
}

func (o *Orders) count(words []string) (string, error) {
	turns, err := strconv.Atoi(words[3])
	if err != nil {
		return "", err
	}
	for turn := 0; turn < turns; turn++ {
		l, err := o.recipe(words[0], words[1], words[2])
		if err != nil {
			return "", err
		}
		if err := l.Acquire(); err != nil {
			return "", err
		}
		added := addOne(words[4])
		if err := l.Release(); err != nil {
			return "", err
		}
		if added != nil {
			return "", added
		}
	}
	return "done", nil
}

// addOne loses counts, and reports that, when two clients call it at once.
func addOne(file string) error {
	occupied := file + ".occupied"
	mark, err := os.OpenFile(occupied, os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return errors.New("two holders at once")
	}
	if err != nil {
		return err
	}
	mark.Close()
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	// Another client that believes to hold the lock gets its chance here.
	time.Sleep(time.Millisecond)
	if err := os.WriteFile(file, []byte(strconv.Itoa(number+1)), 0o644); err != nil {
		return err
	}
	return os.Remove(occupied)
}

// acquireWithin waits at most that long; without limit if wait is negative. A lock without a limit of its own is
// given back at once when it comes too late.
func acquireWithin(l Lock, wait time.Duration) (bool, error) {
	if wait < 0 {
		return true, l.Acquire()
	}
	if patient, ok := l.(Patient); ok {
		return patient.AcquireWithin(wait)
	}
	done := make(chan error, 1)
	go func() { done <- l.Acquire() }()
	select {
	case err := <-done:
		return true, err
	case <-time.After(wait):
		go func() {
			if <-done == nil {
				l.Release()
			}
		}()
		return false, nil
	}
}
