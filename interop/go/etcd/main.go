// The driver takes orders for the locks of etcd's own client on stdin; interop/README.md says which.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"fencelock/interop/workloads"
)

func main() {
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(server, ttlMs, logFile string) error {
	millis, err := strconv.Atoi(ttlMs)
	if err != nil {
		return err
	}
	place, err := url.Parse(server)
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(place.Host, ","), DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	sessions := &sessions{client: client, seconds: millis / 1000, used: map[string]int{}}
	recipe := func(kind, _, name string) (workloads.Lock, error) {
		key := strings.TrimPrefix(place.Path, "/") + "/" + name
		if kind == "floor" {
			put := func(ctx context.Context) error { _, err := client.Put(ctx, key, ""); return err }
			remove := func(ctx context.Context) error { _, err := client.Delete(ctx, key); return err }
			return &lock{client: client, key: key, take: put, leave: remove}, nil
		}
		session, err := sessions.forLock(key)
		if err != nil {
			return nil, err
		}
		switch kind {
		case "Mutex":
			return mutex(client, session, key), nil
		case "nested":
			return mutex(client, session, key+"/nested"), nil
		case "Election":
			election := concurrency.NewElection(session, key)
			take := func(ctx context.Context) error { return election.Campaign(ctx, "interop") }
			return &lock{client: client, key: key, take: take, leave: election.Resign}, nil
		}
		return nil, fmt.Errorf("no such recipe: %s", kind)
	}
	return workloads.NewOrders(recipe, versions, logFile).Serve(nil)
}

// sessions are as many as the most locks of one name: locks of one session and one name do not exclude each other.
type sessions struct {
	client  *clientv3.Client
	seconds int
	mutex   sync.Mutex
	all     []*concurrency.Session
	used    map[string]int
}

// forLock is a session that no other lock of that key has.
func (s *sessions) forLock(key string) (*concurrency.Session, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	number := s.used[key]
	s.used[key]++
	if number == len(s.all) {
		session, err := concurrency.NewSession(s.client, concurrency.WithTTL(s.seconds))
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, session)
	}
	return s.all[number], nil
}

// lock is a mutex or an election, or the bare requests of one.
type lock struct {
	client *clientv3.Client
	key    string
	take   func(context.Context) error
	leave  func(context.Context) error
}

func mutex(client *clientv3.Client, session *concurrency.Session, key string) *lock {
	mutex := concurrency.NewMutex(session, key)
	return &lock{client: client, key: key, take: mutex.Lock, leave: mutex.Unlock}
}

func (l *lock) Acquire() error { return l.take(context.Background()) }

func (l *lock) AcquireWithin(wait time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := l.take(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

func (l *lock) Release() error { return l.leave(context.Background()) }

// Queued is how many keys contend.
func (l *lock) Queued() (int, error) {
	found, err := l.client.Get(context.Background(), l.key+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return int(found.Count), nil
}

func versions() string {
	said := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "go.etcd.io/etcd/client/v3" {
				said = "clientv3=" + module.Version + " "
			}
		}
	}
	return said + "Go=" + strings.TrimPrefix(runtime.Version(), "go")
}
