package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
)

// forever is longer than any test waits.
const forever = 24 * time.Hour

// mutex is redsync's with its defaults, except for its time to live and a wait without limit.
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

func (m *mutex) AcquireWithin(wait time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := m.mutex.LockContext(ctx)
	if err != nil && ctx.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

func (m *mutex) Release() error {
	held, err := m.mutex.Unlock()
	if err == nil && !held {
		err = fmt.Errorf("lost before it was released")
	}
	return err
}

// Queued sees no queue, because there is none: a refused try is a waiter.
func (m *mutex) Queued() (int, error) { return queued(&m.refused) }

// lock is bsm/redislock's, which does not try again by itself: every 0.1 s.
type lock struct {
	client  *redislock.Client
	key     string
	ttl     time.Duration
	held    *redislock.Lock
	refused atomic.Bool
}

// NextBackoff is asked for after each try that was refused.
func (l *lock) NextBackoff() time.Duration {
	l.refused.Store(true)
	return 100 * time.Millisecond
}

func (l *lock) Acquire() error {
	_, err := l.AcquireWithin(forever)
	return err
}

func (l *lock) AcquireWithin(wait time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	held, err := l.client.Obtain(ctx, l.key, l.ttl, &redislock.Options{RetryStrategy: l})
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	}
	l.held = held
	return err == nil, err
}

func (l *lock) Release() error { return l.held.Release(context.Background()) }

func (l *lock) Queued() (int, error) { return queued(&l.refused) }

func queued(refused *atomic.Bool) (int, error) {
	if refused.Load() {
		return 1, nil
	}
	return 0, nil
}
