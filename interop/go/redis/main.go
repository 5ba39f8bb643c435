// The driver takes a benchmark's orders for redsync's lock on stdin; interop/README.md says which.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"fencelock/interop/workloads"
)

func main() {
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(server, ttlMs, logFile string) error {
	ttl, err := strconv.Atoi(ttlMs)
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(server)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	if err := client.Ping(context.Background()).Err(); err != nil {
		return err
	}
	locks := redsync.New(goredis.NewPool(client))
	orders := workloads.New(func(kind, parent, name string) (workloads.Lock, error) {
		if kind != "Mutex" {
			return nil, fmt.Errorf("no such recipe: %s", kind)
		}
		return newMutex(locks, parent+":"+name, time.Duration(ttl)*time.Millisecond), nil
	}, logFile)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		answer, err := "done "+versions(), error(nil)
		if words[0] != "version" {
			answer, err = orders.Obey(words)
		}
		if err != nil {
			answer = "failed " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
	return lines.Err()
}

func versions() string {
	client := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/go-redsync/redsync/v4" {
				client = module.Version
			}
		}
	}
	return fmt.Sprintf("redsync=%s Go=%s", client, strings.TrimPrefix(runtime.Version(), "go"))
}

// mutex is redsync's with its defaults, but that it waits without limit, and for its time to live.
type mutex struct {
	mutex   *redsync.Mutex
	refused atomic.Bool
}

func newMutex(locks *redsync.Redsync, key string, ttl time.Duration) *mutex {
	m := &mutex{}
	// The library's own delay, which is the only sign of a waiter.
	delay := func(int) time.Duration {
		m.refused.Store(true)
		return time.Duration(50+rand.Intn(200)) * time.Millisecond
	}
	without := redsync.WithTries(math.MaxInt32)
	m.mutex = locks.NewMutex(key, redsync.WithExpiry(ttl), without, redsync.WithRetryDelayFunc(delay))
	return m
}

func (m *mutex) Acquire() error { return m.mutex.Lock() }

func (m *mutex) Release() error {
	held, err := m.mutex.Unlock()
	if err == nil && !held {
		err = fmt.Errorf("lost before it was released")
	}
	return err
}

// Queued sees no queue, because there is none: who was refused waits.
func (m *mutex) Queued() (int, error) {
	if m.refused.Load() {
		return 1, nil
	}
	return 0, nil
}
