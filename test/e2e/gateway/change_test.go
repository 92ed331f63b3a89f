package gateway

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/simengine"
)

// TestPolicyChanges changes the policy while an answer streams: the answer is not
// cut, and later requests are routed by the new policy.
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.worker("prefill-0", fleet.Prefill, nil)
	d := s.worker("decode-0", fleet.Decode, func(c *simengine.Config) { c.Timing.DecodePerToken = 20 * time.Millisecond })
	s.start()
	s.pickers[0].sees(2)
	if r := s.complete(tokens(1, 2)); r.prefill() != "prefill-0" {
		t.Fatalf("prefilled by %q", r.prefill())
	}
	long := s.stream(tokens(2, 2), 10_000)
	long.next()

	p := s.policy()
	base := p.DeepCopy()
	p.Spec.Disaggregation.Mode = v1alpha1.DisaggregationNever
	if err := mesh.cluster.Client().Patch(t.Context(), p, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	seed := 2
	eventually(t, "the decode worker computes prompts itself", func() error {
		seed++
		if r := s.complete(tokens(seed, 2)); r.prefill() != "decode-0" {
			return fmt.Errorf("prefilled by %q", r.prefill())
		}
		return nil
	})
	headers := d.Stats().PrefillHeaders
	for range 5 {
		seed++
		if r := s.complete(tokens(seed, 2)); r.prefill() != "decode-0" {
			t.Errorf("prefilled by %q", r.prefill())
		}
	}
	if n := d.Stats().PrefillHeaders - headers; n != 0 {
		t.Errorf("%d requests named a prefill worker", n)
	}
	s.policyIs("Accepted")
	long.next() // it is still under way
	long.close()
}

// stream is an answer that is read event by event.
type stream struct {
	site  *site
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (s *site) stream(prompt []uint32, count int) *stream {
	s.t.Helper()
	resp, err := streams.Do(s.request("/v1/completions", generation(prompt, count, true)))
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		s.t.Fatalf("answer %d", resp.StatusCode)
	}
	st := &stream{site: s, body: resp.Body, lines: bufio.NewScanner(resp.Body)}
	s.t.Cleanup(st.close)
	return st
}

// streams has no timeout.
var streams = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// next reads one event; the stream must not have ended.
func (st *stream) next() {
	st.site.t.Helper()
	for st.lines.Scan() {
		if data, found := strings.CutPrefix(st.lines.Text(), "data: "); found {
			if data == "[DONE]" {
				st.site.t.Fatal("the stream ended before the test was done with it")
			}
			return
		}
	}
	st.site.t.Fatalf("the stream was cut: %v", st.lines.Err())
}

// finish reads to the regular end.
func (st *stream) finish() {
	st.site.t.Helper()
	last := ""
	for st.lines.Scan() {
		if st.lines.Text() != "" {
			last = st.lines.Text()
		}
	}
	if err := st.lines.Err(); err != nil || last != "data: [DONE]" {
		st.site.t.Errorf("the stream was cut: %v, after %q", err, last)
	}
	st.close()
}

func (st *stream) close() { _ = st.body.Close() } // what was read counts

// TestTLS encrypts ext-proc by the chart's value. All other tests go without.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(values tree) { set(values, true, "extProcTLS", "enabled") })
	s.worker("a", fleet.Aggregated, nil)
	s.start()
	p := s.pickers[0]
	p.sees(1)
	before := p.metric("warmpath_decisions_total")
	for i := range 3 {
		s.complete(tokens(i, 2))
	}
	if n := p.metric("warmpath_decisions_total") - before; n != 3 {
		t.Errorf("the picker made %v decisions for 3 requests", n)
	}
	port, err := s.deployment().port("grpc-ext-proc")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", netip.AddrPortFrom(p.addr, port).String(),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatalf("ext-proc is not encrypted: %v", err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "h2" {
		t.Errorf("protocol %q", got)
	}
}

// TestPortWithoutHTTP2 takes the marks from the picker's port by which Istio knows to
// speak HTTP/2 to it: the gateway fails, and the status of the policy says why.
func TestPortWithoutHTTP2(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.worker("a", fleet.Aggregated, nil)
	s.deploy()
	service := new(corev1.Service)
	d := s.deployment()
	if err := mesh.cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: d.Name}, service); err != nil {
		t.Fatal(err)
	}
	for i := range service.Spec.Ports {
		if p := &service.Spec.Ports[i]; p.Name == "grpc-ext-proc" {
			p.Name, p.AppProtocol = "ext-proc", nil
		}
	}
	if err := mesh.cluster.Client().Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if err := mesh.publishPool(t.Context(), s.ns, release, workerPort, map[string]string{"app": "llm"}); err != nil {
		t.Fatal(err)
	}
	p := s.startPicker()
	p.sees(1)
	s.accepted() // Istio has no objection
	eventually(t, "the gateway fails", func() error {
		r, err := s.send("/v1/completions", completion(tokens(1, 1)))
		if err == nil && r.status != http.StatusInternalServerError {
			err = fmt.Errorf("answer %d %s", r.status, r.body)
		}
		return err
	})
	eventually(t, "the policy's status names the fault", func() error {
		c := meta.FindStatusCondition(s.policy().Status.Conditions, "ResolvedRefs")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "PickerPortNotHTTP2" {
			return fmt.Errorf("ResolvedRefs is %+v", c)
		}
		return nil
	})
}

// TestNoPicker takes the only picker away. FailClose refuses everything. FailOpen
// serves what has no body; Istio cannot do so for a body that it streams to the
// picker. When the picker is back, both are as before.
func TestNoPicker(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]struct{ get, post int }{
		"FailClose": {500, 500},
		"FailOpen":  {200, 500},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(values tree) { set(values, mode, "inferencePool", "failureMode") })
			s.worker("a", fleet.Aggregated, nil)
			s.start()
			p := s.pickers[0]
			p.sees(1)
			p.crash()
			for range 3 {
				for path, c := range map[string]struct {
					body []byte
					want int
				}{"/v1/models": {nil, want.get}, "/v1/completions": {completion(tokens(1, 2)), want.post}} {
					r, err := s.send(path, c.body)
					if err != nil {
						t.Fatal(err)
					}
					if r.status != c.want {
						t.Errorf("%s: answer %d %s, want %d", path, r.status, r.body, c.want)
					}
				}
			}
			p.restart()
			eventually(t, "requests are answered again", func() error {
				r, err := s.send("/v1/completions", completion(tokens(2, 2)))
				if err == nil && r.status != http.StatusOK {
					err = fmt.Errorf("%d %s", r.status, r.body)
				}
				return err
			})
		})
	}
}

// TestUpgrade replaces both replicas under load, one after the other, as a roll-out
// does after helm upgrade with other values. No request fails, no stream is cut, and
// the new pickers know what the workers hold.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(values tree) {
		set(values, 2, "replicaCount")
		set(values, "24s", "config", "server", "drainTimeout") // time for requests under way
	})
	slow := func(c *simengine.Config) { c.Timing.DecodePerToken = 20 * time.Millisecond }
	for i := range 3 {
		s.worker(fmt.Sprintf("worker-%d", i), fleet.Aggregated, slow)
	}
	s.start()
	for _, p := range s.pickers {
		p.sees(3)
	}
	const prompts, blocks = 4, 4
	first := make([]string, prompts)
	for i := range prompts {
		first[i] = s.complete(tokens(i, blocks)).decode()
	}
	for _, p := range s.pickers {
		p.knowsAll()
	}
	load := s.startLoad(2)

	old := s.pickers
	for _, p := range old {
		p.isAsked()
	}
	s.pickers = nil
	set(s.values, "20s", "config", "spec", "eventPlane", "warmUp", "timeout")
	s.deploy()
	for _, p := range old {
		load.progress(5)
		replacement := s.startPicker()
		if replacement.checksum == p.checksum {
			t.Error("other values, and the same checksum of the configuration: no roll-out would happen")
		}
		load.progress(5)
		var running []*stream // some of them by way of the old picker
		for i := range 4 {
			running = append(running, s.stream(tokens(50+i, 2), 100))
		}
		p.retire()
		for _, r := range running {
			r.finish()
		}
	}
	for _, p := range s.pickers {
		p.isAsked()
	}
	load.stop()

	for _, p := range s.pickers {
		p.sees(3)
		p.knowsAll()
	}
	for range 2 { // once for each replica, or nearly so
		for i := range prompts {
			s.idle()
			if r := s.complete(tokens(i, blocks)); r.decode() != first[i] {
				t.Errorf("prompt %d went to %s, and before the upgrade to %s", i, r.decode(), first[i])
			}
		}
	}
}

// load sends requests one after the other, from several clients, and wants each of
// them answered.
type load struct {
	site    *site
	quit    chan struct{}
	clients sync.WaitGroup

	mu   sync.Mutex
	done int
	err  error // the first
}

func (s *site) startLoad(clients int) *load {
	l := &load{site: s, quit: make(chan struct{})}
	for c := range clients {
		l.clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.quit:
					return
				default:
				}
				r, err := s.send("/v1/completions", completion(tokens(1000*(c+1)+i%50, 2)))
				if err == nil && r.status != http.StatusOK {
					err = fmt.Errorf("answer %d %s", r.status, r.body)
				}
				l.count(err)
			}
		})
	}
	s.t.Cleanup(l.stop)
	return l
}

func (l *load) count(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
	l.err = errors.Join(l.err, err)
}

// progress waits until n more requests have ended.
func (l *load) progress(n int) {
	l.site.t.Helper()
	l.mu.Lock()
	want := l.done + n
	l.mu.Unlock()
	eventually(l.site.t, "requests go on", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.done < want {
			return fmt.Errorf("%d of %d", l.done, want)
		}
		return nil
	})
}

// stop ends the load and reports what failed. It may be called again.
func (l *load) stop() {
	l.site.t.Helper()
	select {
	case <-l.quit:
		return
	default:
	}
	close(l.quit)
	l.clients.Wait()
	if l.err != nil {
		l.site.t.Errorf("of %d requests some were lost: %v", l.done, l.err)
	}
	l.site.t.Logf("%d requests", l.done)
}
