// Package testport finds ports for tests that cannot listen on port 0: a port that
// must be known before anybody listens, or that is given up and taken again.
package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports below those that kernels give to clients and to who listens on port 0: none
// of these gets one while nobody listens.
const first, last = 20_000, 31_999

var (
	mu    sync.Mutex
	given = map[int]bool{}
)

// Free returns a TCP port of the loopback on which nobody listens, and which no other
// test of this process was given.
func Free(t testing.TB) int {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	for range 1000 {
		port := first + rand.IntN(last-first+1)
		if given[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		given[port] = true
		return port
	}
	t.Fatal("no free port")
	return 0
}
