package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// TestSubjectSwitch re-deploys an aggregated pool, which publishes on component
// backend, as prefill and decode workers, which publish on component prefill,
// under traffic. Nobody tells the picker more than the new list of workers.
func TestSubjectSwitch(t *testing.T) {
	for _, c := range []struct {
		name   string
		follow gateway.FollowMode
		newer  string // generation of the new pods; from 1.4 on subjects name the endpoint too
	}{
		{"header/same_format", gateway.ByHeader, "1.2"},
		{"header/new_format", gateway.ByHeader, "1.4"},
		{"metadata/new_format", gateway.ByMetadata, "1.4"},
		{"override_host/same_format", gateway.OverrideHost, "1.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			agg := s.sims(2, "agg", fleet.Aggregated, "--generation", "1.2", "--component", "backend")
			var prefill, decode []*worker
			deploy := func() {
				prefill = s.sims(2, "prefill", fleet.Prefill, "--generation", c.newer, "--component", "prefill")
				decode = s.sims(2, "decode", fleet.Decode, "--generation", c.newer, "--component", "prefill")
			}
			if c.follow == gateway.OverrideHost {
				deploy() // Envoy's list of endpoints is fixed here: they start first, and are listed later
			}
			s.list(agg...)
			s.startPicker(pickerOptions{})
			s.startGateway(gateway.Config{Follow: c.follow}, join(agg, prefill, decode)...)

			prompt := tokens(1, 40*blockSize)
			s.sticks(prompt, agg)

			load := s.traffic(3)
			load.settle(t)
			if c.follow != gateway.OverrideHost {
				deploy()
			}
			s.list(join(prefill, decode)...)
			load.settle(t) // no request that was sent to an old pod is under way now
			for _, w := range agg {
				w.stop(t)
			}
			load.settle(t)
			load.stop(t)

			by := s.sticks(prompt, prefill)
			if by.decode() == by.prefill() || !strings.HasPrefix(by.decode(), "decode-") {
				t.Errorf("decoded by %q, computed by %q", by.decode(), by.prefill())
			}
			s.wantIndexOf(prefill, agg)
			for _, component := range []string{"backend", "prefill"} {
				if s.metric("warmpath_event_messages_total", fmt.Sprintf("component=%q", component)) == 0 {
					t.Errorf("no event was heard on component %s", component)
				}
			}
			if n := len(s.picker.logged("serving")); n != 1 || !s.picker.running() {
				t.Errorf("the picker started %d times, running is %t", n, s.picker.running())
			}
		})
	}
}

// sticks sends a prompt again and again. Once the index has it for the worker
// that computed it, one of candidates, every repeat must go there and find it.
// It returns the last answer.
func (s *stack) sticks(prompt []uint32, candidates []*worker) reply {
	s.t.Helper()
	first := s.complete(prompt)
	holder := named(s.t, first.prefill(), candidates).name
	s.awaitHeld(holder, prompt)
	var r reply
	for range 4 {
		s.idle()
		r = s.complete(prompt)
		want := (len(prompt) - 1) / blockSize * blockSize
		if r.prefill() != holder || cachedTokens(s.t, r) != want {
			s.t.Errorf("computed by %q, %d tokens cached, want %q and %d", r.prefill(), cachedTokens(s.t, r), holder, want)
		}
	}
	return r
}

// wantIndexOf wants the index to hold blocks of these workers of the pool and no
// others. Workers that have left may still be there, unknown to the pool, when
// they finished a request after they left: their events are kept for a while.
func (s *stack) wantIndexOf(workers, left []*worker) {
	s.t.Helper()
	inPool := 0
	for _, held := range s.index() {
		is := func(w *worker) bool { return w.id() == held.ID }
		switch {
		case held.Name == "" && slices.ContainsFunc(left, is):
		case slices.ContainsFunc(workers, func(w *worker) bool {
			return is(w) && w.name == held.Name && w.role.String() == held.Role
		}):
			inPool++
		default:
			s.t.Errorf("the index has %d blocks of worker %d %q, role %q", len(held.Chains), held.ID, held.Name, held.Role)
		}
	}
	if inPool == 0 {
		s.t.Error("the index has no blocks of the pool")
	}
}

// traffic is requests that go on in the background.
type traffic struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   []atomic.Int64 // requests of each client

	mu  sync.Mutex
	bad []string
}

// trafficPrompts is how many prompts a client sends in turn.
const trafficPrompts = 7

// trafficPrompt is the n-th of a client.
func trafficPrompt(client, n int) []uint32 { return tokens(100+n, (20+n)*blockSize+client) }

// traffic starts clients that send one request after the other until stop.
func (s *stack) traffic(clients int) *traffic {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	l := &traffic{cancel: cancel, done: make([]atomic.Int64, clients)}
	s.t.Cleanup(func() {
		cancel()
		l.wg.Wait()
	})
	for i := range clients {
		l.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.one(ctx, s, trafficPrompt(i, n%trafficPrompts))
				l.done[i].Add(1)
			}
		})
	}
	return l
}

func (l *traffic) one(ctx context.Context, s *stack, prompt []uint32) {
	fail := func(what string) {
		if ctx.Err() != nil {
			return // cut off by stop
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.bad = append(l.bad, what)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", strings.NewReader(completion(prompt)))
	if err != nil {
		fail(err.Error())
		return
	}
	r, err := do(s.client, req)
	if err != nil {
		fail(err.Error())
	} else if r.status != http.StatusOK {
		fail(fmt.Sprintf("%d %s", r.status, r.body))
	}
}

// settle waits until every client has finished a request after it was called:
// whatever was under way before is over.
func (l *traffic) settle(t *testing.T) {
	t.Helper()
	for i := range l.done {
		from := l.done[i].Load()
		eventually(t, "a request that was under way has ended", func() bool { return l.done[i].Load() > from })
	}
}

// stop ends the traffic. Not one request may have failed.
func (l *traffic) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	if len(l.bad) > 0 {
		t.Errorf("%d requests failed, such as: %s", len(l.bad), l.bad[0])
	}
}
