package extproc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/admission"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// Objectives of these tests, and their priorities.
var testObjectives = map[string]int{"low": 1, "high": 2, "batch": -1}

// withQueue lets n requests wait, for as long as no test waits.
func withQueue(n int) func(*Config) {
	return func(c *Config) {
		c.Queueing = Queueing{MaxWait: 10 * deadline, MaxRequests: n}
		c.Objectives = testObjectives
	}
}

// onePrompt lets every worker have one prompt at a time.
func onePrompt(r *rig) {
	o := pick.DefaultOptions()
	o.MaxPrefillTokens = 1
	r.picker.SetOptions(o)
}

func aggregates(n int) (pool []fleet.Worker) {
	for i := range n {
		pool = append(pool, worker(uint64(31+i), fleet.Aggregated, fmt.Sprintf("10.0.3.%d:8000", i+1)))
	}
	return pool
}

// prompts counts prompts of the tests, so that no two have a block in common.
var prompts atomic.Uint32

func newPrompt() string { return tokenBody(count(100*prompts.Add(1), 16), "") }

// ask sends a request whose answer may be a while in coming.
func (l *live) ask(t *testing.T, headers ...string) *envoy {
	t.Helper()
	e := l.open(t)
	e.send(duplexModes.first(headersMsg("POST", completions, false, headers...)))
	e.send(bodyMsg(newPrompt(), true))
	return e
}

// wantRouted reads the whole answer to ask.
func (e *envoy) wantRouted() {
	e.t.Helper()
	e.want("request headers routed")
	for !streamedBody(e.next()).GetEndOfStream() {
	}
}

// answer is what the gateway tells of the first output.
func (e *envoy) answer() {
	e.t.Helper()
	e.send(answerHeadersMsg("200", false))
	e.send(answerBodyMsg("data", false))
	e.want("response headers", "response body 4")
}

func (r *rig) room() *room { return r.server.routing.Load().room }

// inLine waits until n requests wait.
func (r *rig) inLine(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " wait"), func() bool { return r.room().n.Load() == int64(n) })
}

func (r *rig) results(t *testing.T, want map[string]float64) {
	t.Helper()
	for _, result := range []string{"placed", "expired", "full", "displaced", "shed", "not_queued", "gone", "no_worker"} {
		if got := r.metric(t, "warmpath_queue_results_total", "result", result); got != want[result] {
			t.Errorf("%v are counted as %s, want %v", got, result, want[result])
		}
	}
	if got := r.metric(t, "warmpath_queue_requests"); got != 0 {
		t.Errorf("%v are counted as waiting", got)
	}
}

// TestWaitsForRoom: the first output of one request, or its end, makes room for the
// next.
func TestWaitsForRoom(t *testing.T) {
	for name, free := range map[string]func(*envoy){
		"first output":   (*envoy).answer,
		"end":            func(e *envoy) { e.cancel() },
		"worker refuses": func(e *envoy) { e.send(answerHeadersMsg("503", true)); e.want("response headers") },
	} {
		t.Run(name, func(t *testing.T) {
			l := startRig(t, aggregatedPool(), withQueue(10))
			onePrompt(l.rig)
			first := l.ask(t)
			first.wantRouted()
			second := l.ask(t)
			l.inLine(t, 1)
			third := l.ask(t)
			l.inLine(t, 2)
			free(first)
			second.wantRouted()
			l.inLine(t, 1)
			free(second)
			third.wantRouted()
			l.inLine(t, 0)
			for _, e := range []*envoy{first, second, third} {
				e.cancel()
			}
			l.waitIdle(t)
			l.results(t, map[string]float64{"placed": 2})
		})
	}
}

// TestRoomWithoutASign: load that others booked ends without a sign.
func TestRoomWithoutASign(t *testing.T) {
	l := startRig(t, aggregatedPool(), withQueue(10))
	onePrompt(l.rig)
	k := aggregatedPool()[0].Key
	w := l.load.Worker(k)
	l.load.Lock()
	theirs := l.load.Reserve(load.Booking{PrefillTokens: 100, PrefillKey: k, Prefill: w, DecodeKey: k, Decode: w})
	l.load.Unlock()
	e := l.ask(t)
	l.inLine(t, 1)
	theirs.Release()
	e.wantRouted()
	e.cancel()
	l.waitIdle(t)
}

// TestManyWaitInOrder: workers become free one by one, and those who wait are served
// in order: priority, then turns of fairness ids, then arrival.
func TestManyWaitInOrder(t *testing.T) {
	const n = 256
	l := startRig(t, aggregates(4), withQueue(n))
	onePrompt(l.rig)
	var holding []*envoy // requests that have a worker to themselves
	for range 4 {
		e := l.ask(t)
		e.wantRouted()
		holding = append(holding, e)
	}
	twin := admission.New(admission.FCFS, n)
	waiting := make([]*envoy, n)
	served := make(chan int, n)
	var wg sync.WaitGroup
	for i := range n {
		objective := []string{"", "low", "high", "no such"}[rand.IntN(4)]
		id := fmt.Sprint(rand.IntN(5))
		e := l.ask(t, "x-gateway-inference-objective", objective, "x-gateway-inference-fairness-id", id)
		l.inLine(t, i+1)
		twin.Push(&admission.Item{Priority: testObjectives[objective], Flow: id, Value: i})
		waiting[i] = e
		wg.Go(func() {
			for m := range e.in {
				if describe(m) == "request headers routed" {
					served <- i
				}
			}
		})
	}
	for range n {
		holding[0].cancel()
		it := twin.Next(time.Time{})
		twin.Served(it)
		want := it.Value.(int)
		select {
		case got := <-served:
			if got != want {
				t.Fatalf("request %d is served, want %d", got, want)
			}
		case <-time.After(deadline):
			t.Fatal("nobody is served")
		}
		holding = append(holding[1:], waiting[want])
	}
	for _, e := range holding {
		e.cancel()
	}
	wg.Wait()
	l.waitIdle(t)
	l.results(t, map[string]float64{"placed": n})
}

// TestLeavesTheLine: a client that goes away is waited for no more, and what it had
// not got goes to the next.
func TestLeavesTheLine(t *testing.T) {
	l := startRig(t, aggregatedPool(), withQueue(10))
	onePrompt(l.rig)
	first := l.ask(t)
	first.wantRouted()
	second := l.ask(t)
	l.inLine(t, 1)
	third := l.ask(t)
	l.inLine(t, 2)
	second.cancel()
	l.inLine(t, 1)
	first.cancel()
	third.wantRouted()
	third.cancel()
	l.waitIdle(t)
	l.results(t, map[string]float64{"placed": 1, "gone": 1})
	if n := l.metric(t, "warmpath_undecided_total", "reason", "busy"); n != 0 {
		t.Errorf("%v refusals counted for nobody", n)
	}
}

func checkDropped(t *testing.T, r *response, code, reason string) {
	t.Helper()
	checkImmediate(t, r, 429, "rate_limit_exceeded", code, "")
	want := map[string]string{"content-type": "application/json", "x-llm-d-request-dropped-reason": reason, "retry-after": "1"}
	for _, h := range r.GetImmediateResponse().GetHeaders().GetSetHeaders() {
		if got := string(h.GetHeader().GetRawValue()); got != want[h.GetHeader().GetKey()] {
			t.Errorf("header %s: %q, want %q", h.GetHeader().GetKey(), got, want[h.GetHeader().GetKey()])
		}
	}
}

func TestDropped(t *testing.T) {
	for name, tc := range map[string]struct {
		queue  func(*Config)
		others []string // objectives of those who wait before
		mine   string
		result string
		code   string
		reason string
	}{
		"no queue":              {nil, nil, "", "not_queued", "all_workers_busy", "rejected-saturated"},
		"sheddable, no queue":   {func(c *Config) { c.Objectives = testObjectives }, nil, "batch", "shed", "shed", "rejected-saturated"},
		"sheddable":             {withQueue(10), nil, "batch", "shed", "shed", "rejected-saturated"},
		"sheddable, some wait":  {withQueue(10), []string{""}, "batch", "shed", "shed", "rejected-saturated"},
		"full":                  {withQueue(2), []string{"low", ""}, "", "full", "queue_full", "rejected-saturated"},
		"full, of its priority": {withQueue(2), []string{"low", "low"}, "low", "full", "queue_full", "rejected-saturated"},
		"too late": {
			func(c *Config) { c.Queueing = Queueing{MaxWait: 20 * time.Millisecond, MaxRequests: 2} },
			nil, "", "expired", "queue_timeout", "rejected-ttl-expired",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := startRig(t, aggregatedPool(), func(c *Config) {
				if tc.queue != nil {
					tc.queue(c)
				}
			})
			onePrompt(l.rig)
			first := l.ask(t)
			first.wantRouted()
			for i, objective := range tc.others {
				l.ask(t, "x-llm-d-inference-objective", objective)
				l.inLine(t, i+1)
			}
			e := l.ask(t, "x-llm-d-inference-objective", tc.mine)
			checkDropped(t, e.next(), tc.code, tc.reason)
			if n := l.metric(t, "warmpath_queue_results_total", "result", tc.result); n != 1 {
				t.Errorf("%v counted as %s", n, tc.result)
			}
			if n := l.metric(t, "warmpath_undecided_total", "reason", "busy"); n != 1 {
				t.Errorf("%v counted as busy", n)
			}
		})
	}
}

// TestDisplaced: a request of a higher priority takes the place of the newest of the
// lowest.
func TestDisplaced(t *testing.T) {
	l := startRig(t, aggregatedPool(), withQueue(2))
	onePrompt(l.rig)
	first := l.ask(t)
	first.wantRouted()
	l.ask(t)
	l.inLine(t, 1)
	newest := l.ask(t)
	l.inLine(t, 2)
	high := l.ask(t, "x-llm-d-inference-objective", "high")
	checkDropped(t, newest.next(), "displaced", "rejected-saturated")
	first.cancel()
	high.wantRouted()
}

// TestNoneIsPassed: a request that comes while others wait does not get what they
// wait for, however fast it is.
func TestNoneIsPassed(t *testing.T) {
	l := startRig(t, aggregates(2), withQueue(10))
	onePrompt(l.rig)
	here := structpb.NewStringValue("10.0.3.1:8000")
	e := l.open(t)
	e.routed(withSubset(headersMsg("POST", completions, false), here), newPrompt())
	second := l.open(t)
	second.send(duplexModes.first(withSubset(headersMsg("POST", completions, false), here)))
	second.send(bodyMsg(newPrompt(), true))
	l.inLine(t, 1)
	// The other worker is idle, and second cannot use it: others of the queue can.
	other := l.ask(t)
	other.wantRouted()
	l.inLine(t, 1)
	// Sheddable ones pass nobody of their kind, and none of the whole pool.
	checkDropped(t, func() *response {
		e := l.open(t)
		e.send(duplexModes.first(withSubset(headersMsg("POST", completions, false, "x-llm-d-inference-objective", "batch"), here)))
		e.send(bodyMsg(newPrompt(), true))
		return e.next()
	}(), "shed", "rejected-saturated")
	other.answer()
	batch := l.ask(t, "x-llm-d-inference-objective", "batch")
	batch.wantRouted()
	e.answer()
	second.wantRouted()
}

// TestNewOnesComeLast: a new request does not take what has become free while others
// wait and have not looked yet.
func TestNewOnesComeLast(t *testing.T) {
	l := startRig(t, aggregatedPool(), withQueue(10))
	onePrompt(l.rig)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { // one that has not seen that the worker is idle
		w := &waiter{attempt: func(*admission.Item) error { return pick.ErrBusy }}
		left <- l.room().wait(ctx, w)
	}()
	l.inLine(t, 1)
	e := l.ask(t)
	l.inLine(t, 2)
	checkDropped(t, l.ask(t, "x-llm-d-inference-objective", "batch").next(), "shed", "rejected-saturated")
	cancel()
	if err := receive(t, left, "it leaves"); !errors.Is(err, context.Canceled) {
		t.Errorf("it left with %v", err)
	}
	e.wantRouted()
}

// TestWorkersLeaveMeanwhile: who waits learns that there is nobody to wait for.
func TestWorkersLeaveMeanwhile(t *testing.T) {
	l := startRig(t, aggregatedPool(), withQueue(10))
	onePrompt(l.rig)
	first := l.ask(t)
	first.wantRouted()
	second := l.ask(t)
	l.inLine(t, 1)
	if err := l.picker.SetFleet(&fleet.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	checkImmediate(t, second.next(), 503, "service_unavailable", "no_endpoint", "")
	if n := l.metric(t, "warmpath_queue_results_total", "result", "no_worker"); n != 1 {
		t.Errorf("%v counted", n)
	}
}

// TestQueueOutlivesRouting: those who wait stay in line when a policy changes that is
// not about the queue.
func TestQueueOutlivesRouting(t *testing.T) {
	l := startRig(t, aggregatedPool(), withQueue(10))
	onePrompt(l.rig)
	first := l.ask(t)
	first.wantRouted()
	second := l.ask(t)
	l.inLine(t, 1)
	next := l.server.routing.Load().Routing
	next.Fallback = 1
	if err := l.server.Use(next); err != nil {
		t.Fatal(err)
	}
	l.inLine(t, 1)
	third := l.ask(t)
	l.inLine(t, 2)
	next.Queueing.MaxRequests++
	if err := l.server.Use(next); err != nil {
		t.Fatal(err)
	}
	l.inLine(t, 0) // of the new queue; they wait in the old one
	first.answer()
	second.wantRouted()
	second.answer()
	third.wantRouted()
	next.Queueing.MaxRequests = -1
	if err := l.server.Use(next); err == nil || !strings.Contains(err.Error(), "-1 requests") {
		t.Errorf("taken into use: %v", err)
	}
}

// TestBodiesOfTheQueue: the queue knows how large the bodies are that wait in it.
func TestBodiesOfTheQueue(t *testing.T) {
	l := startRig(t, aggregates(1), withQueue(10))
	onePrompt(l.rig)
	first := l.ask(t)
	first.wantRouted()
	room := l.room()
	held := func() int {
		room.mu.Lock()
		defer room.mu.Unlock()
		return room.queue.Bytes()
	}
	want := 0
	for i := range 3 {
		e := l.open(t)
		body := tokenBody(count(1, 50*(i+1)), "")
		want += len(body)
		e.send(duplexModes.first(headersMsg("POST", completions, false)))
		e.send(bodyMsg(body[:20], false))
		e.send(bodyMsg(body[20:], true))
		l.inLine(t, i+1)
		if got := held(); got != want {
			t.Errorf("%d requests of %d bytes wait, want %d", i+1, got, want)
		}
		defer e.cancel()
	}
	first.answer()
	eventually(t, "one is served", func() bool { return held() < want })
}

// TestPolicyLiftsBound: those who wait, and those who come behind them, have the good of
// a policy without the bound at once; those whose prompts it would read in another way
// stay with their own.
func TestPolicyLiftsBound(t *testing.T) {
	for _, eagle := range []bool{false, true} {
		l := startRig(t, aggregates(1), withQueue(10))
		line := l.room()
		if !eagle {
			line.again = time.Hour // it is told
		}
		onePrompt(l.rig)
		first := l.ask(t)
		first.wantRouted()
		second := l.ask(t)
		l.inLine(t, 1)
		unused := make(chan struct{})
		l.server.routing.Load().Unused = func() { close(unused) }
		other := pick.New(l.index, index.NewSpeculation(time.Hour), l.load, blockSize)
		if err := other.SetFleet(l.picker.Fleet()); err != nil {
			t.Fatal(err)
		}
		next := l.server.routing.Load().Routing
		next.Picker, next.Unused, next.Layout.Eagle = other, nil, eagle
		if err := l.server.Use(next); err != nil {
			t.Fatal(err)
		}
		if eagle {
			third := l.ask(t)
			third.wantRouted()
			if n := line.n.Load(); n != 1 {
				t.Errorf("%d wait in the old queue, want 1", n)
			}
			third.answer()
			first.answer()
			second.wantRouted()
		} else {
			second.wantRouted()
			l.ask(t).wantRouted()
		}
		receiveEnd(t, unused, "the first routing is not needed any more")
	}
}

// TestPolicyChangesAllTheTime: requests wait, are served and leave while routings come
// and go; each routing is let go of.
func TestPolicyChangesAllTheTime(t *testing.T) {
	l := startRig(t, aggregates(2), withQueue(100))
	onePrompt(l.rig)
	var left atomic.Int64 // routings in use
	use := func() {
		next := l.server.routing.Load().Routing
		next.Fallback = 1 - next.Fallback
		next.Unused = func() { left.Add(-1) }
		left.Add(1)
		if err := l.server.Use(next); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				e := l.ask(t)
				e.wantRouted()
				use()
				e.answer()
				e.cancel()
			}
		})
	}
	wg.Wait()
	eventually(t, "all streams have ended", func() bool { return l.metric(t, "warmpath_streams") == 0 })
	if n := left.Load(); n != 1 {
		t.Errorf("%d routings are in use, want the last one", n)
	}
}

func receiveEnd(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(deadline):
		t.Fatalf("waited in vain: %s", what)
	}
}

func TestPriorities(t *testing.T) {
	r := newRig(t, aggregatedPool(), func(c *Config) { c.Objectives = map[string]int{"policy": 3, "both": 4} })
	ask := func(headers ...string) int {
		var h head
		h.read(headersMsg("POST", completions, false, headers...).GetRequestHeaders().GetHeaders().GetHeaders(), &routing{})
		return r.server.priority(r.server.routing.Load(), &h)
	}
	check := func(what string, got, want int, unknown float64) {
		t.Helper()
		if n := r.metric(t, "warmpath_unknown_objectives_total"); got != want || n != unknown {
			t.Errorf("%s: priority %d, want %d; %v unknown, want %v", what, got, want, n, unknown)
		}
	}
	check("none", ask(), 0, 0)
	check("the policy's", ask("x-llm-d-inference-objective", "policy"), 3, 0)
	check("unknown", ask("x-gateway-inference-objective", "cluster"), 0, 1)
	mine := map[string]int{"cluster": -5, "both": 6}
	r.server.SetObjectives(mine)
	mine["cluster"] = 9
	check("the cluster's", ask("x-gateway-inference-objective", "cluster"), -5, 1)
	check("both", ask("x-gateway-inference-objective", "both"), 4, 1)
	check("two headers", ask("x-gateway-inference-objective", "cluster", "x-llm-d-inference-objective", "policy"), 3, 1)
	r.server.SetObjectives(nil)
	check("gone", ask("x-gateway-inference-objective", "cluster"), 0, 2)
}

func receive(t *testing.T, c <-chan error, what string) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(deadline):
		t.Fatalf("waited in vain: %s", what)
		return nil
	}
}

// slots is something that some number of requests can have.
type slots struct {
	free, taken atomic.Int64
	most        int64
}

func (s *slots) take(*admission.Item) error {
	for n := s.free.Load(); n > 0; n = s.free.Load() {
		if s.free.CompareAndSwap(n, n-1) {
			s.taken.Add(1)
			return nil
		}
	}
	return pick.ErrBusy
}

// TestRoomConcurrently: clients come, go away, are displaced and served at once.
// Everybody gets an answer, whoever got a slot had it once, and none is lost.
func TestRoomConcurrently(t *testing.T) {
	s := &slots{most: 3}
	s.free.Store(s.most)
	r := newRoom(Queueing{MaxWait: deadline, MaxRequests: 40}, newQueueMetrics(prometheus.NewRegistry()), time.Now)
	var served, dropped, gone atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 30 {
				ctx, cancel := context.WithCancel(t.Context())
				w := &waiter{attempt: s.take, item: admission.Item{
					Priority: i % 3, Flow: fmt.Sprint(i % 5), Kind: uint64(j % 2), Deadline: time.Now().Add(deadline),
				}}
				if rand.IntN(4) == 0 {
					go cancel()
				}
				switch err := r.wait(ctx, w); {
				case err == nil:
					served.Add(1)
					s.free.Add(1)
					r.fell()
				case errors.Is(err, pick.ErrBusy):
					dropped.Add(1)
				case errors.Is(err, context.Canceled):
					gone.Add(1)
				default:
					t.Errorf("outcome %v", err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if n := served.Load() + dropped.Load() + gone.Load(); n != 64*30 || served.Load() != s.taken.Load() || served.Load() == 0 {
		t.Errorf("%d served of %d slots taken, %d dropped, %d gone: %d in all", served.Load(), s.taken.Load(), dropped.Load(), gone.Load(), n)
	}
	if s.free.Load() != s.most || r.n.Load() != 0 || r.queue.Len() != 0 || len(r.baton) != 0 {
		t.Errorf("%d slots are free, %d wait, %d in line, %d batons", s.free.Load(), r.n.Load(), r.queue.Len(), len(r.baton))
	}
}

// blindRoom is one that only looks for room when it is told to.
func blindRoom() *room {
	r := newRoom(Queueing{MaxWait: 10 * deadline, MaxRequests: 1000}, newQueueMetrics(prometheus.NewRegistry()), time.Now)
	r.again = time.Hour
	return r
}

// TestNoWakeUpIsLost: every slot that becomes free is used as long as somebody waits,
// one by one, and several at once.
func TestNoWakeUpIsLost(t *testing.T) {
	for _, at := range []int{1, 2, 50} {
		s := &slots{most: 1}
		r := blindRoom()
		const n = 200
		served := make(chan struct{}, n)
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				w := &waiter{attempt: s.take, item: admission.Item{Deadline: time.Now().Add(deadline)}}
				if err := r.wait(t.Context(), w); err != nil {
					t.Error(err)
				}
				served <- struct{}{}
			})
		}
		for range n / at {
			s.free.Add(int64(at))
			r.fell()
			for range at {
				wait(t, served, "a slot is used")
			}
		}
		wg.Wait()
	}
}

// TestLeavesOnTrial: a client that goes away while somebody else picks a worker for it
// is gone when there is none; what it has got is its own to give back.
func TestLeavesOnTrial(t *testing.T) {
	for _, tc := range []struct{ outcome, want error }{{pick.ErrBusy, context.Canceled}, {nil, nil}, {pick.ErrNoWorkers, pick.ErrNoWorkers}} {
		r := blindRoom()
		holder, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			left <- r.wait(holder, &waiter{attempt: func(*admission.Item) error { return pick.ErrBusy }})
		}()
		eventually(t, "it looks for all", func() bool { return len(r.baton) == 1 })
		client, hangUp := context.WithCancel(t.Context())
		tried, open, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		w := &waiter{item: admission.Item{Kind: 1}, attempt: func(*admission.Item) error {
			close(tried)
			<-open
			return tc.outcome
		}}
		go func() { result <- r.wait(client, w) }()
		wait(t, tried, "it is on trial")
		hangUp()
		eventually(t, "it wants to leave", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return w.leaving != nil
		})
		close(open)
		if got := receive(t, result, "it leaves"); !errors.Is(got, tc.want) {
			t.Errorf("outcome %v: it leaves with %v, want %v", tc.outcome, got, tc.want)
		}
		leave()
		if err := receive(t, left, "the other one leaves"); !errors.Is(err, context.Canceled) || r.n.Load() != 0 || r.queue.Len() != 0 {
			t.Errorf("the other one leaves with %v; %d wait, %d in line", err, r.n.Load(), r.queue.Len())
		}
	}
}

// TestAttemptPanics: a defect in one request leaves nobody hanging.
func TestAttemptPanics(t *testing.T) {
	r := newRoom(Queueing{MaxWait: 10 * deadline, MaxRequests: 10}, newQueueMetrics(prometheus.NewRegistry()), time.Now)
	var free atomic.Bool
	outcomes := make(chan string, 2)
	run := func(name string, attempt func(*admission.Item) error) {
		go func() {
			defer func() {
				if v := recover(); v != nil {
					outcomes <- fmt.Sprint(v)
				}
			}()
			w := &waiter{attempt: attempt, item: admission.Item{Deadline: time.Now().Add(deadline)}}
			outcomes <- fmt.Sprint(name, " ", r.wait(t.Context(), w))
		}()
	}
	run("first", func(*admission.Item) error {
		if free.Load() {
			return nil
		}
		return pick.ErrBusy
	})
	eventually(t, "it waits", func() bool { return r.n.Load() == 1 && len(r.baton) == 1 })
	run("second", func(*admission.Item) error {
		if free.Load() {
			panic("defect")
		}
		return pick.ErrBusy
	})
	eventually(t, "both wait", func() bool { return r.n.Load() == 2 })
	free.Store(true)
	r.fell()
	got := []string{<-outcomes, <-outcomes}
	slices.Sort(got)
	// Whoever tries for both may be the one that is hit.
	if want := []string{"first <nil>", "second " + errAborted.Error()}; !slices.Equal(got, want) && got[0] != "defect" {
		t.Errorf("outcomes %q", got)
	}
	eventually(t, "nobody waits", func() bool { return r.n.Load() == 0 && len(r.baton) == 0 })
}

// TestPanicLeavesNoGhost: whoever looked for room when another one's attempt panicked is
// out of line, too: a worker that it got would be booked for ever.
func TestPanicLeavesNoGhost(t *testing.T) {
	r := blindRoom()
	var free atomic.Bool
	var ghost atomic.Int64
	run := func(priority int, attempt func(*admission.Item) error) chan string {
		out := make(chan string, 1)
		go func() {
			defer func() {
				if v := recover(); v != nil {
					out <- fmt.Sprint(v)
				}
			}()
			w := &waiter{attempt: attempt, item: admission.Item{Priority: priority, Deadline: time.Now().Add(deadline)}}
			out <- fmt.Sprint(r.wait(t.Context(), w))
		}()
		return out
	}
	looker := run(0, func(*admission.Item) error {
		if free.Load() {
			ghost.Add(1)
		}
		return pick.ErrBusy
	})
	eventually(t, "it waits", func() bool { return r.n.Load() == 1 && len(r.baton) == 1 })
	defect := run(1, func(*admission.Item) error {
		if free.Load() {
			panic("defect")
		}
		return pick.ErrBusy
	})
	eventually(t, "both wait", func() bool { return r.n.Load() == 2 })
	free.Store(true)
	r.fell()
	if got := <-looker; got != "defect" {
		t.Fatalf("who looks: %s", got)
	}
	if got := <-defect; got != errAborted.Error() {
		t.Errorf("whose attempt panics: %s", got)
	}
	if got := <-run(0, func(*admission.Item) error { return nil }); got != "<nil>" {
		t.Errorf("the next one: %s", got)
	}
	if ghost.Load() > 0 || r.n.Load() != 0 || r.queue.Len() != 0 {
		t.Errorf("%d attempts for who is gone; %d wait, %d in line", ghost.Load(), r.n.Load(), r.queue.Len())
	}
}

func TestKinds(t *testing.T) {
	subset := func(texts ...string) *pick.Subset {
		s := &pick.Subset{Present: true}
		for _, text := range texts {
			addToSubset(s, text)
		}
		return s
	}
	if kindOf(&pick.Subset{}) != anyWorker {
		t.Error("without a hint there is a restriction")
	}
	if a, b := kindOf(subset("10.0.0.1:80,10.0.0.2")), kindOf(subset("10.0.0.2", "10.0.0.1:80")); a != b || a == anyWorker {
		t.Errorf("kinds %d and %d of one subset", a, b)
	}
	if a, b := kindOf(subset()), kindOf(subset("10.0.0.2")); a == b || a == anyWorker {
		t.Errorf("kinds %d and %d of two subsets", a, b)
	}
}

// TestShortestFirst: what counts is what has to be computed, not how long the prompt
// is.
func TestShortestFirst(t *testing.T) {
	l := startRig(t, aggregatedPool(), withQueue(10), func(c *Config) { c.Queueing.Policy = admission.WSPT })
	onePrompt(l.rig)
	held := count(500_000, 16)
	l.hold(t, aggregatedPool()[0].Key, held[:12], block.NewSeed("", ""))
	first := l.ask(t)
	first.wantRouted()
	var waiting []*envoy
	for i, prompt := range []string{
		tokenBody(count(600_000, 16), ""), // 16 to compute
		tokenBody(count(700_000, 8), ""),  // 8
		tokenBody(held, ""),               // 4
	} {
		e := l.open(t)
		e.send(duplexModes.first(headersMsg("POST", completions, false)))
		e.send(bodyMsg(prompt, true))
		l.inLine(t, i+1)
		waiting = append(waiting, e)
	}
	first.answer()
	for _, i := range []int{2, 1, 0} {
		waiting[i].wantRouted()
		l.inLine(t, i)
		waiting[i].answer()
	}
}
