// The driver takes orders for the locks of Go programs on Redis on stdin; interop/README.md says which.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
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

func serve(servers, ttlMs, logFile string) error {
	millis, err := strconv.Atoi(ttlMs)
	if err != nil {
		return err
	}
	ttl := time.Duration(millis) * time.Millisecond
	var clients []*redis.Client
	var pools []pool.Pool
	for _, server := range strings.Split(servers, ",") {
		options, err := redis.ParseURL(server)
		if err != nil {
			return err
		}
		// Else redsync's own time for a server is not kept, and one that is silent holds up all others.
		options.ContextTimeoutEnabled = strings.Contains(servers, ",")
		client := redis.NewClient(options)
		if err := client.Ping(context.Background()).Err(); err != nil {
			return err
		}
		clients, pools = append(clients, client), append(pools, goredis.NewPool(client))
	}
	locks := redsync.New(pools...)
	recipe := func(kind, parent, name string) (workloads.Lock, error) {
		key := parent + ":" + name
		switch kind {
		case "Mutex":
			return newMutex(locks, key, ttl), nil
		case "redislock":
			return &lock{client: redislock.New(clients[0]), key: key, ttl: ttl}, nil
		}
		return nil, fmt.Errorf("no such recipe: %s", kind)
	}
	return workloads.NewOrders(recipe, versions, logFile).Serve(nil)
}

// versions are those of the modules that lock.
func versions() string {
	said := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			switch module.Path {
			case "github.com/go-redsync/redsync/v4":
				said += "redsync=" + module.Version + " "
			case "github.com/bsm/redislock":
				said += "bsm/redislock=" + module.Version + " "
			}
		}
	}
	return said + "Go=" + strings.TrimPrefix(runtime.Version(), "go")
}
