package testport

import (
	"fmt"
	"net"
	"testing"
)

func TestFree(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port := Free(t)
		if port < first || port > last || seen[port] {
			t.Errorf("port %d is not from %d to %d, or was given before", port, first, last)
		}
		seen[port] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Error(err)
			continue
		}
		defer l.Close()
	}
}
