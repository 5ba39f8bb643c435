// The driver takes orders for the locks of Go programs on stdin; interop/README.md says which.
package main

import (
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
	children := func(words []string) (string, error) {
		names, _, err := conn.Children(words[1])
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return "", err
		}
		return strings.TrimSpace("done " + strings.Join(names, " ")), nil
	}
	err = workloads.NewOrders(locks, versions, logFile).Serve(map[string]workloads.Order{"children": children})
	conn.Close()
	return err
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
