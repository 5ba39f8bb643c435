// The driver takes orders for the locks of Go programs on stdin; interop/README.md says which.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"fencelock/interop/workloads"
)

type driver struct {
	conn      *zk.Conn
	held      map[int]workloads.Lock
	handles   int
	workloads *workloads.Workloads
}

func main() {
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(servers, sessionTimeoutMs, logFile string) error {
	timeout, err := strconv.Atoi(sessionTimeoutMs)
	if err != nil {
		return err
	}
	quiet := zk.WithLogger(log.New(io.Discard, "", 0))
	conn, events, err := zk.Connect(strings.Split(servers, ","), time.Duration(timeout)*time.Millisecond, quiet)
	if err != nil {
		return err
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	locks := func(kind, parent, name string) (workloads.Lock, error) { return recipe(conn, kind, parent, name) }
	d := &driver{conn: conn, held: map[int]workloads.Lock{}, workloads: workloads.New(locks, logFile)}
	fmt.Println("ready")
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		answer, err := d.obey(strings.Split(orders.Text(), " "))
		if err != nil {
			answer = "failed " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
	conn.Close()
	return orders.Err()
}

func (d *driver) obey(words []string) (string, error) {
	switch words[0] {
	case "version":
		return "done " + versions(), nil
	case "acquire":
		return d.acquire(words[1:])
	case "release":
		return d.release(words[1])
	case "end":
		handle, err := strconv.Atoi(words[1])
		delete(d.held, handle)
		return "done", err
	case "count":
		return d.count(words[1:])
	case "children":
		children, _, err := d.conn.Children(words[1])
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return "", err
		}
		return strings.TrimSpace("done " + strings.Join(children, " ")), nil
	}
	return d.workloads.Obey(words)
}

func versions() string {
	client := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/go-zookeeper/zk" {
				client = module.Version
			}
		}
	}
	return fmt.Sprintf("go-zookeeper/zk=%s Go=%s", client, strings.TrimPrefix(runtime.Version(), "go"))
}

func (d *driver) acquire(words []string) (string, error) {
	l, err := recipe(d.conn, words[0], words[1], words[2])
	if err != nil {
		return "", err
	}
	waitMs, err := strconv.Atoi(words[3])
	if err != nil {
		return "", err
	}
	acquired, err := acquireWithin(l, time.Duration(waitMs)*time.Millisecond)
	at := workloads.Now()
	if err != nil {
		return "", err
	}
	if !acquired {
		return "busy", nil
	}
	d.handles++
	d.held[d.handles] = l
	return fmt.Sprintf("done handle=%d at=%d", d.handles, at), nil
}

func (d *driver) release(word string) (string, error) {
	handle, err := strconv.Atoi(word)
	if err != nil {
		return "", err
	}
	l, ok := d.held[handle]
	if !ok {
		return "", fmt.Errorf("no such handle: %d", handle)
	}
	delete(d.held, handle)
	at := workloads.Now()
	if err := l.Release(); err != nil {
		return "", err
	}
	return fmt.Sprintf("done at=%d", at), nil
}

func (d *driver) count(words []string) (string, error) {
	turns, err := strconv.Atoi(words[3])
	if err != nil {
		return "", err
	}
	for turn := 0; turn < turns; turn++ {
		l, err := recipe(d.conn, words[0], words[1], words[2])
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

// addOne loses counts, and says so, when two do it at once.
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
	// Whoever else believes to hold the lock gets its chance here.
	time.Sleep(time.Millisecond)
	if err := os.WriteFile(file, []byte(strconv.Itoa(number+1)), 0o644); err != nil {
		return err
	}
	return os.Remove(occupied)
}
