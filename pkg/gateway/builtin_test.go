package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
)

func TestBuiltinRefuses(t *testing.T) {
	picker := netip.MustParseAddrPort("127.0.0.1:1")
	if _, err := NewBuiltin(Config{Picker: picker, Follow: OverrideHost, Workers: []netip.AddrPort{picker}}); err == nil || !strings.Contains(err.Error(), "needs envoy") {
		t.Errorf("override host: %v", err)
	}
	if _, err := NewBuiltin(Config{}); err == nil {
		t.Error("no picker: no error")
	}
}

// TestBuiltinStops ends a gateway with streams under way, in three phases: Run
// must return, and picker and worker be told.
func TestBuiltinStops(t *testing.T) {
	w := startWorker(t)
	p := startPicker(t, w.addr())
	b, err := NewBuiltin(Config{Picker: p.addr})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()

	resp := openPost(t, b.Addr(), "/sse", "streams", false)
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	stalled, sender := io.Pipe()
	client := newClient(t, false)
	for name, body := range map[string]io.Reader{"thinks": strings.NewReader("{}"), "sends": stalled} {
		req := request(t, t.Context(), b.Addr(), "/echo", name, body)
		req.Header.Set(scriptHeader, scriptSilent)
		go func() {
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			errs <- err
		}()
	}
	for _, name := range []string{"thinks", "sends"} {
		p.wait(t, name, func(s seen) bool { return len(s.messages) > 0 })
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	sender.CloseWithError(io.ErrUnexpectedEOF)
	for range 2 {
		if err := <-errs; err == nil {
			t.Error("a request that was cut short has no error")
		}
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a response that was cut short looks complete")
	}
	for _, name := range []string{"streams", "thinks", "sends"} {
		if s := p.end(t, name); !errors.Is(s.ended, context.Canceled) {
			t.Errorf("%s: the picker's stream ended with %v", name, s.ended)
		}
	}
	<-w.left("streams")
}

// TestBodyQueue checks order, the end, and that a closed queue takes no more.
func TestBodyQueue(t *testing.T) {
	q := newBodyQueue()
	q.push([]byte("ab"))
	q.push(nil)
	q.push([]byte("cde"))
	q.finish(io.EOF)
	q.finish(io.ErrUnexpectedEOF) // only the first end counts
	q.push([]byte("late"))
	var got strings.Builder
	buf := make([]byte, 2)
	for {
		n, err := q.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			if err != io.EOF {
				t.Errorf("end %v", err)
			}
			break
		}
	}
	if got.String() != "abcde" {
		t.Errorf("read %q", got.String())
	}

	q = newBodyQueue()
	q.push([]byte("ab"))
	read := make(chan error, 1)
	go func() {
		for {
			if _, err := q.Read(buf); err != nil {
				read <- err
				return
			}
		}
	}()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; err != io.ErrClosedPipe {
		t.Errorf("a reader of a closed queue got %v", err)
	}
}
