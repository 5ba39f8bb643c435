module fencelock/interop

go 1.19

require (
	github.com/go-zookeeper/zk v1.0.4
	golang.org/x/sys v0.15.0
)
