package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// beside is another picker on the same bus and the same workers.
func (s *stack) beside(workers ...*worker) *stack {
	s.t.Helper()
	other := &stack{t: s.t, dir: s.t.TempDir(), natsURL: s.natsURL, bus: s.bus, client: newClient(s.t, false)}
	other.list(workers...)
	return other
}

// failover sends requests to two gateways in turn, and once more to the second one
// when the first fails, as a load balancer before them does.
type failover struct {
	t     *testing.T
	quit  chan struct{}
	going sync.WaitGroup
	stop  func() // may be called again

	served, failed, lost atomic.Int64
}

func startFailover(t *testing.T, first, second *stack, streams int) *failover {
	t.Helper()
	f := &failover{t: t, quit: make(chan struct{})}
	f.stop = sync.OnceFunc(func() {
		close(f.quit)
		f.going.Wait()
	})
	try := func(s *stack, body string) bool {
		r, err := send(t, s.client, http.MethodPost, s.url+"/v1/completions", strings.NewReader(body), nil)
		return err == nil && r.status == http.StatusOK
	}
	for n := range streams {
		f.going.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-f.quit:
					return
				default:
				}
				body := completion(tokens(1+n*1000+i%1000, 100))
				ok := i%2 == 0 && try(first, body)
				if i%2 == 0 && !ok {
					f.failed.Add(1)
				}
				if !ok && !try(second, body) {
					f.lost.Add(1)
				}
				f.served.Add(1)
			}
		})
	}
	return f
}

// settle waits until more requests are served.
func (f *failover) settle() {
	f.t.Helper()
	want := f.served.Load() + 30
	eventually(f.t, "requests are served", func() bool { return f.served.Load() >= want })
}

// TestReplicaKilled kills one of two pickers, each behind an Envoy of its own, while
// requests run through both: what the killed one had under way vanishes from the
// books of the other within seconds, and no request is lost that may be sent again.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	one := newStack(t)
	hold := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-hold") == "" {
			fmt.Fprint(w, "{}")
			return
		}
		eventStream(w)
		fmt.Fprint(w, "data: 1\n\n")
		flush(w)
		<-r.Context().Done()
	}
	a, b := newRecorder(t, "agg-0", fleet.Aggregated, 1, hold), newRecorder(t, "agg-1", fleet.Aggregated, 1, hold)
	one.list(&a.worker, &b.worker)
	other := one.beside(&a.worker, &b.worker)
	synced := pickerOptions{events: "replicaSync: true"}
	one.startPicker(synced)
	other.startPicker(synced)
	one.startGateway(gateway.Config{})
	other.startGateway(gateway.Config{})
	for _, s := range []*stack{one, other} {
		s.awaitMetric(1, "warmpath_replicas")
	}

	load := startFailover(t, one, other, 3)
	defer load.stop()
	const held = 6
	for i := range held {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, one.url+"/v1/completions", strings.NewReader(completion(tokens(9000+i, 100))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Hold", "1")
		resp, err := newClient(t, false).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "data: 1\n" || err != nil {
			t.Fatalf("first event %q, %v", line, err)
		}
	}
	eventually(t, "the other picker knows what the first has under way", func() bool { return other.metric("warmpath_foreign_requests") >= held })
	load.settle()
	if n := load.failed.Load(); n != 0 {
		t.Errorf("%d requests failed before anything happened", n)
	}

	// A picker that a busy machine holds up for seconds counts as lost, until it is heard.
	lost := other.metric("warmpath_replicas_lost_total")
	one.picker.kill()
	killed := time.Now()
	other.awaitMetric(0, "warmpath_foreign_requests")
	t.Logf("%d requests under way vanished from the other picker's books in %v", held, time.Since(killed))
	eventually(t, "the dead picker is counted as lost", func() bool { return other.metric("warmpath_replicas_lost_total") > lost })
	other.awaitMetric(0, "warmpath_replicas")
	load.settle()
	load.stop()
	if load.lost.Load() != 0 || load.failed.Load() == 0 {
		t.Errorf("%d of %d requests lost, %d failed over; want none lost and some failed over", load.lost.Load(), load.served.Load(), load.failed.Load())
	}
	other.idle()
}
