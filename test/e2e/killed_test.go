package e2e

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/internal/testport"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// TestPickerKilled kills one of two pickers behind one Envoy, the chart's, under load
// and with requests held in every phase. Nothing is lost: not a request fails, be it
// new or under way, and each reaches a worker once. Then the other picker is killed
// as well: what it had decided comes to its end, and the failure mode says what
// becomes of the rest.
func TestPickerKilled(t *testing.T) {
	for _, mode := range []string{"FailClose", "FailOpen"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			k := newKilling(t, mode)
			victim, other := k.pickers[0], k.pickers[1]
			under := k.holdAll(victim)
			eventually(t, "the other picker knows what the first has under way", func() bool {
				return other.metric("warmpath_foreign_requests") >= decided*heldPerPhase
			})
			load := k.traffic(2)
			load.settle(t)
			k.kill(victim)
			load.settle(t)
			eventually(t, "the other picker has lost the first", func() bool { return other.metric("warmpath_replicas_lost_total") >= 1 })
			other.awaitMetric(0, "warmpath_replicas")
			other.awaitMetric(0, "warmpath_foreign_requests")
			k.work.release()
			for _, r := range under {
				k.wantServed(r)
			}
			load.settle(t)
			load.stop(t)
			other.idle()

			under = k.holdAll(other)
			k.kill(other)
			k.work.release()
			for _, r := range under {
				if r.phase.decided || mode == "FailOpen" {
					k.wantServed(r)
				} else {
					k.wantRefused(r)
				}
			}
			want := map[string]int{"FailClose": http.StatusServiceUnavailable, "FailOpen": http.StatusOK}[mode]
			for i := range 20 {
				if r := k.post("/v1/completions", completion(tokens(i, 100)), nil); r.status != want {
					t.Errorf("without a picker the answer is %d %s, want %d", r.status, r.body, want)
				}
			}
		})
	}
}

// phase is how far a request has come when its picker dies.
type phase struct {
	name    string
	sent    float64 // the part of the body that is sent before
	text    bool    // the prompt is text, for whose tokens the picker asks a worker
	hold    string  // what the worker does
	decided bool
}

var phases = []phase{
	{name: "before-its-body", sent: 0},
	{name: "in-its-body", sent: 0.5},
	{name: "waiting", sent: 1, hold: "answer", decided: true},
	{name: "in-the-answer", sent: 1, hold: "stream", decided: true},
	{name: "being-decided", sent: 1, text: true}, // the last: workers have a minute to answer
}

const (
	heldPerPhase = 3 // at the picker that is killed, at least
	decided      = 2 // phases
)

// killing is the chart's Envoy with two pickers and two workers behind it.
type killing struct {
	*deployment
	pickers []*stack // that live
	work    *holder
	workers []*recorder
	made    int // requests
}

func newKilling(t *testing.T, mode string) *killing {
	t.Helper()
	s := newStack(t)
	k := &killing{work: newHolder(), deployment: &deployment{
		stack: s, ns: "demo", port: testport.Free(t), network: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)),
	}}
	for i := range 2 {
		k.workers = append(k.workers, newRecorderAt(t, fmt.Sprint("agg-", i), fleet.Aggregated, []string{k.addr(k.ip(1 + i))}, k.work.serve))
	}
	a, b := &k.workers[0].worker, &k.workers[1].worker
	s.list(a, b)
	k.pickers = []*stack{s, s.beside(a, b)}
	encrypted := mode == "FailOpen" // that one of the two has TLS is no more than that both are run
	hosts := []string{k.ip(101), k.ip(102)}
	for i, p := range k.pickers {
		o := pickerOptions{
			listen: fmt.Sprintf("%s:%d", hosts[i], extProc), events: "replicaSync: true",
			spec: "  tokenizer: {engine: {protocol: Render, timeout: 1m}}",
		}
		if encrypted {
			o.server = "extProcTLS: {selfSigned: true}"
		}
		p.startPicker(o)
	}
	for _, p := range k.pickers {
		p.awaitMetric(1, "warmpath_replicas")
	}
	var known []string // FailOpen needs workers to go on with
	if mode == "FailOpen" {
		known = []string{k.ip(1), k.ip(2)}
	}
	k.startStandaloneEnvoyFor(hosts, known,
		fmt.Sprintf("inferencePool.failureMode=%q", mode), fmt.Sprintf("extProcTLS.enabled=%t", encrypted))
	return k
}

// kill ends a picker without a word.
func (k *killing) kill(p *stack) {
	p.picker.kill()
	for i := range k.pickers {
		if k.pickers[i] == p {
			k.pickers = append(k.pickers[:i:i], k.pickers[i+1:]...)
			return
		}
	}
}

// held is a request that has come so far.
type held struct {
	phase  phase
	id     string
	conn   net.Conn
	answer *bufio.Reader
	rest   string // of the body
}

// holdAll opens requests until a picker has some in each phase. What other pickers
// get of them is held as well.
func (k *killing) holdAll(at *stack) (list []*held) {
	k.t.Helper()
	k.work.hold()
	here, elsewhere := k.streams(at)
	for _, ph := range phases {
		for until := here + heldPerPhase; here < until; {
			all := here + elsewhere
			list = append(list, k.open(ph))
			eventually(k.t, "a picker is asked", func() bool {
				here, elsewhere = k.streams(at)
				return here+elsewhere == all+1
			})
		}
	}
	for _, r := range list {
		k.await(r)
	}
	return list
}

// streams are the requests that are with a picker, and with others.
func (k *killing) streams(at *stack) (here, elsewhere float64) {
	for _, p := range k.pickers {
		if n := p.metric("warmpath_streams"); p == at {
			here = n
		} else {
			elsewhere += n
		}
	}
	return here, elsewhere
}

func (k *killing) open(ph phase) *held {
	k.t.Helper()
	k.made++
	body := completion(tokens(5000+k.made, 100))
	if ph.text {
		body = fmt.Sprintf(`{"model":%q,"max_tokens":1,"prompt":"text %d"}`, model, k.made)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(k.url, "http://"))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(5 * patience)); err != nil {
		k.t.Fatal(err)
	}
	r := &held{phase: ph, id: fmt.Sprintf("%s-%d", ph.name, k.made), conn: conn, answer: bufio.NewReader(conn)}
	sent := int(ph.sent * float64(len(body)))
	r.rest = body[sent:]
	_, err = fmt.Fprintf(conn, "POST /v1/completions?id=%s HTTP/1.1\r\nHost: e2e\r\nX-Hold: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		r.id, ph.hold, len(body), body[:sent])
	if err != nil {
		k.t.Fatal(err)
	}
	return r
}

// await waits until a request has come as far as its phase says.
func (k *killing) await(r *held) {
	k.t.Helper()
	switch {
	case r.phase.text:
		n := 0
		for _, ph := range phases {
			if ph.text {
				n += heldPerPhase
			}
		}
		eventually(k.t, "workers are asked for tokens", func() bool { return k.work.asked.Load() >= int64(n) })
	case r.phase.decided:
		eventually(k.t, "a worker has the request "+r.id, func() bool { return k.arrived(r) == 1 })
	}
}

// arrived is how often a request came to a worker.
func (k *killing) arrived(r *held) (n int) {
	for _, w := range k.workers {
		w.mu.Lock()
		for _, a := range w.got {
			if strings.HasSuffix(a.uri, "?id="+r.id) {
				n++
			}
		}
		w.mu.Unlock()
	}
	return n
}

// finish sends what is left of a request and reads the answer.
func (k *killing) finish(r *held) (status int, body string, err error) {
	defer r.conn.Close()
	_, _ = io.WriteString(r.conn, r.rest) // one that is refused may not be read to its end
	resp, err := http.ReadResponse(r.answer, nil)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

func (k *killing) wantServed(r *held) {
	k.t.Helper()
	status, body, err := k.finish(r)
	if status != http.StatusOK || err != nil || !strings.HasSuffix(body, lastWords) {
		k.t.Errorf("%s: answer %d %q, %v; want all of it", r.id, status, body, err)
	}
	if n := k.arrived(r); n != 1 {
		k.t.Errorf("%s: came to workers %d times, want once", r.id, n)
	}
}

func (k *killing) wantRefused(r *held) {
	k.t.Helper()
	status, body, err := k.finish(r)
	if status != http.StatusServiceUnavailable || err != nil {
		k.t.Errorf("%s: answer %d %q, %v; want 503", r.id, status, body, err)
	}
	if n := k.arrived(r); n != 0 {
		k.t.Errorf("%s: came to workers %d times though it was refused", r.id, n)
	}
}

// lastWords end every answer of a holder.
const lastWords = "data: [DONE]\n\n"

// holder answers for workers: requests that say so are held, and all of which tokens
// are asked, until they are released. What else comes is answered at once, every
// other one as a stream.
type holder struct {
	asked, plain atomic.Int64 // requests for tokens; others that are not held

	mu   sync.Mutex
	gate chan struct{}
}

func newHolder() *holder { return &holder{gate: make(chan struct{})} }

// hold begins to hold requests, anew.
func (h *holder) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = make(chan struct{})
	h.asked.Store(0)
}

func (h *holder) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.gate)
}

// wait returns false when the client is gone.
func (h *holder) wait(r *http.Request) bool {
	h.mu.Lock()
	gate := h.gate
	h.mu.Unlock()
	select {
	case <-gate:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (h *holder) serve(w http.ResponseWriter, r *http.Request) {
	hold := r.Header.Get("X-Hold")
	switch {
	case strings.HasSuffix(r.URL.Path, "/render"):
		h.asked.Add(1)
		if h.wait(r) {
			fmt.Fprint(w, `{"token_ids":[1,2,3]}`)
		}
		return
	case hold == "answer" && !h.wait(r):
		return
	case hold == "stream", hold == "" && h.plain.Add(1)%2 == 0:
		eventStream(w)
		fmt.Fprint(w, "data: 1\n\n")
		flush(w)
		if hold == "stream" && !h.wait(r) {
			return
		}
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", 2+i)
			flush(w)
		}
	}
	fmt.Fprint(w, lastWords)
}
