package extproc

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestDrain: after the end of its context a server tells probes at once, still
// serves streams that come, lets open ones finish, and only then returns.
func TestDrain(t *testing.T) {
	t.Parallel() // it takes a third of the time to drain
	l := startRig(t, splitPool(), func(c *Config) { c.DrainTimeout = 30 * time.Second })
	e := l.open(t)
	e.routed(headersMsg("POST", completions, false), prompt16)
	e.send(answerHeadersMsg("200", false))
	e.want("response headers")
	health := dial(t, l.health)
	defer health.Close()
	l.stop()
	eventually(t, "health says NOT_SERVING", func() bool { return probe(t, health, "readiness") == notServing })
	if got := probe(t, health, "liveness"); got != serving {
		t.Errorf("liveness is %v", got)
	}
	// Requests of gateways that have not seen it yet.
	for range 5 {
		late := l.open(t)
		late.routed(headersMsg("POST", completions, false), prompt16)
		if err := late.finish(); err != nil {
			t.Errorf("a late stream: %v", err)
		}
	}
	// When the server takes no more streams, the open one goes on.
	eventually(t, "no new connections are taken", func() bool {
		conn, err := net.Dial("tcp", l.streams)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if got := probe(t, health, ""); got != notServing {
		t.Errorf("readiness is %v while the last stream is open", got)
	}
	for range 3 {
		e.send(answerBodyMsg("data: 1\n\n", false))
		e.want("response body 9")
	}
	select {
	case <-l.ran:
		t.Fatal("Run returned before the last stream ended")
	default:
	}
	e.send(answerBodyMsg("", true))
	e.want("response body 0 eos")
	if err := e.finish(); err != nil {
		t.Error(err)
	}
	l.waitEnd(t)
	l.waitIdle(t)
	if n := l.log.count("draining"); n != 1 || l.log.count("level=WARN") != 0 {
		t.Errorf("log:\n%s", l.log)
	}
}

// TestDrainTimeout: what is still open then is cut, and its load freed.
func TestDrainTimeout(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"before the quiet second": time.Millisecond, "after it": quiet + quiet/5} {
		t.Run(name, func(t *testing.T) {
			l := startRig(t, splitPool(), func(c *Config) { c.DrainTimeout = timeout })
			e := l.open(t)
			e.routed(headersMsg("POST", completions, false), prompt16)
			l.stop()
			l.waitEnd(t)
			if err := e.ended(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
				t.Errorf("the stream ended with %v", err)
			}
			l.waitIdle(t)
			if n := l.log.count("drain timeout is over"); n != 1 {
				t.Errorf("log:\n%s", l.log)
			}
		})
	}
}

// TestDrainIdle: with no stream open, the drain ends by itself.
func TestDrainIdle(t *testing.T) {
	l := startRig(t, splitPool(), func(c *Config) { c.DrainTimeout = 9 * time.Second })
	l.stop()
	l.waitEnd(t)
	if l.log.count("level=WARN") != 0 {
		t.Errorf("log:\n%s", l.log)
	}
}

// TestListenerFails: a listener that breaks ends Run with its error, and both
// are closed.
func TestListenerFails(t *testing.T) {
	for _, which := range []string{"streams", "health"} {
		r := newRig(t, splitPool())
		streams, health := listen(t), listen(t)
		if which == "streams" {
			streams.Close()
		} else {
			health.Close()
		}
		err := r.server.Run(context.Background(), streams, health)
		if err == nil || !strings.Contains(err.Error(), "extproc: serve") {
			t.Errorf("%s: Run returned %v", which, err)
		}
		for _, l := range []net.Listener{streams, health} {
			if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
				conn.Close()
				t.Errorf("%s: a listener is still open", which)
			}
		}
	}
}
