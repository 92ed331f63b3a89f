package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// orphanEnv makes this test binary start the Envoy of that path, print its admin
// address and wait to be killed.
const orphanEnv = "WARMPATH_TEST_ORPHAN"

func leaveOrphan() {
	e, err := StartEnvoy(context.Background(), os.Getenv(orphanEnv), Config{Picker: netip.MustParseAddrPort("127.0.0.1:1")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(e.Admin())
	<-e.Done()
}

// TestEnvoyDiesWithParent kills a process that runs an Envoy: the Envoy must go.
func TestEnvoyDiesWithParent(t *testing.T) {
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), orphanEnv+"="+envoyBinaryFor(t), "TMPDIR="+t.TempDir())
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(errors.Join(err, parent.Wait()))
	}
	url := "http://" + strings.TrimSpace(line) + "/ready"
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if _, err := get(t.Context(), client, url); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := get(ctx, client, url); err != nil && ctx.Err() == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("the envoy outlived its parent")
		case <-tick.C:
		}
	}
}
