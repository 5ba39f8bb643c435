package main

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"fencelock/interop/workloads"
)

var acl = zk.WorldACL(zk.PermAll)

// recipe makes one of the locks that Go programs take, by name.
func recipe(conn *zk.Conn, kind, parent, name string) (workloads.Lock, error) {
	switch kind {
	case "Lock":
		full := parent + "/" + name
		return &library{queue{conn, full}, zk.NewLock(conn, full, acl)}, nil
	case "plain":
		full := parent + "/" + name
		return &sequence{queue: queue{conn, full}, parent: full, prefix: "lock-", match: all, number: lastTen}, nil
	case "shared":
		return &sequence{queue: queue{conn, parent}, parent: parent, prefix: name, match: holding(name), number: after(name), protected: true}, nil
	case "bare":
		// One parent, nothing but the key before the number, and every child a contender.
		return &sequence{queue: queue{conn, parent}, parent: parent, prefix: name, match: all, number: lastTen}, nil
	case "own":
		// The same for several keys: a node that begins with another key is no contender.
		return &sequence{queue: queue{conn, parent}, parent: parent, prefix: name, match: beginning(name), number: lastTen}, nil
	}
	return nil, fmt.Errorf("no such recipe: %s", kind)
}

// queue is the node under which contenders queue.
type queue struct {
	conn *zk.Conn
	path string
}

func (q *queue) Queued() (int, error) {
	there, stat, err := q.conn.Exists(q.path)
	if err != nil || !there {
		return 0, err
	}
	return int(stat.NumChildren), nil
}

// library is the lock of go-zookeeper/zk.
type library struct {
	queue
	lock *zk.Lock
}

func (l *library) Acquire() error { return l.lock.Lock() }
func (l *library) Release() error { return l.lock.Unlock() }

// sequence is ZooKeeper's lock recipe as programs write it themselves: an ephemeral sequential node, then waiting for
// the one before. Programs differ in the nodes that they count, and in how they read a node's number.
type sequence struct {
	queue
	parent, prefix string
	match          func(child string) bool
	number         func(child string) (int64, error)
	// Whether the node's name begins with an id, as a create that survives a lost reply makes it.
	protected bool
	node      string
}

func (s *sequence) Acquire() error {
	node, err := s.create()
	if err != nil {
		return err
	}
	s.node = node
	own, err := s.number(path.Base(node))
	if err != nil {
		return err
	}
	for {
		before, err := s.predecessor(own)
		if err != nil {
			return err
		}
		if before == "" {
			return nil
		}
		there, _, gone, err := s.conn.ExistsW(s.parent + "/" + before)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		if event := <-gone; event.Err != nil {
			return event.Err
		}
	}
}

func (s *sequence) create() (string, error) {
	for {
		full := s.parent + "/" + s.prefix
		var node string
		var err error
		if s.protected {
			node, err = s.conn.CreateProtectedEphemeralSequential(full, nil, acl)
		} else {
			node, err = s.conn.Create(full, nil, zk.FlagEphemeral|zk.FlagSequence, acl)
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return node, err
		}
		if err := createParents(s.conn, s.parent); err != nil {
			return "", err
		}
	}
}

// predecessor is the contender with the greatest number below own, or "".
func (s *sequence) predecessor(own int64) (string, error) {
	children, _, err := s.conn.Children(s.parent)
	if err != nil {
		return "", err
	}
	nearest, greatest := "", int64(-1)
	for _, child := range children {
		if !s.match(child) {
			continue
		}
		number, err := s.number(child)
		if err != nil {
			return "", err
		}
		if number < own && number > greatest {
			nearest, greatest = child, number
		}
	}
	return nearest, nil
}

func (s *sequence) Release() error { return s.conn.Delete(s.node, -1) }

func all(string) bool { return true }

func beginning(key string) func(string) bool {
	return func(child string) bool { return strings.HasPrefix(child, key) && len(child) == len(key)+10 }
}

func holding(key string) func(string) bool {
	return func(child string) bool { return strings.Contains(child, key) }
}

func lastTen(child string) (int64, error) {
	if len(child) < 10 {
		return 0, fmt.Errorf("no number at the end of %q", child)
	}
	return strconv.ParseInt(child[len(child)-10:], 10, 64)
}

func after(key string) func(string) (int64, error) {
	return func(child string) (int64, error) {
		return strconv.ParseInt(child[strings.LastIndex(child, key)+len(key):], 10, 64)
	}
}

func createParents(conn *zk.Conn, full string) error {
	for i := 1; i <= len(full); i++ {
		if i < len(full) && full[i] != '/' {
			continue
		}
		if _, err := conn.Create(full[:i], nil, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}
