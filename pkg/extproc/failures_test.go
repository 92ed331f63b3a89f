package extproc

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

var begin = time.Unix(1000, 0)

func at(seconds float64) time.Time {
	return begin.Add(time.Duration(seconds * float64(time.Second)))
}

// poolOf returns a pool of workers.
func poolOf(t *testing.T, workers []fleet.Worker) *fleet.Snapshot {
	t.Helper()
	pool, err := fleet.NewSnapshot(workers)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// manyWorkers is a pool with n endpoints of one role.
func manyWorkers(n int) (pool []fleet.Worker) {
	for i := range n {
		w := worker(uint64(1000+i), fleet.Aggregated, "10.0.9.1:1")
		w.Endpoint = netip.AddrPortFrom(w.Endpoint.Addr(), uint16(i+1))
		pool = append(pool, w)
	}
	return pool
}

// history is what happens to endpoints, by the names of workers of a pool.
type history struct {
	t *testing.T
	f failures
	p *fleet.Snapshot
}

func (h *history) endpoint(id uint64) netip.AddrPort {
	h.t.Helper()
	i, ok := h.p.Index(fleet.Key{ID: id})
	if id != 0 && !ok {
		h.t.Fatalf("no worker %d", id)
	}
	if id == 0 {
		return netip.AddrPort{}
	}
	return h.p.Workers[i].Endpoint
}

// fail lets a request fail; prefill 0: there was no other worker.
func (h *history) fail(s severity, worker, prefill uint64, second float64) {
	h.t.Helper()
	h.f.fail(outcome{sent: at(second), endpoint: party{at: h.endpoint(worker)}, prefill: party{at: h.endpoint(prefill)}, severity: s}, at(second))
}

func (h *history) worked(worker, prefill uint64, sent float64) {
	h.t.Helper()
	h.f.worked(at(sent), h.endpoint(worker), h.endpoint(prefill))
}

// want compares the workers that are avoided.
func (h *history) want(second float64, want ...uint64) {
	h.t.Helper()
	var got []uint64
	for _, e := range h.f.avoid(nil, h.p, at(second)) {
		k, _ := workerAt(h.p, e)
		got = append(got, k.ID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		h.t.Errorf("avoided at %v s: %d, want %d", second, got, want)
	}
}

// TestPauses: how long an endpoint is avoided after failures and successes.
func TestPauses(t *testing.T) {
	h := &history{t: t, p: poolOf(t, aggregates(6))}
	h.want(0)
	h.fail(unserved, 31, 0, 0)
	h.want(0) // may be chance
	h.fail(unserved, 31, 0, 0)
	h.fail(unserved, 31, 0, 1) // sent before the pause began
	h.fail(unserved, 32, 0, 1)
	h.want(4.9, 31)
	h.want(5)
	h.fail(unserved, 31, 0, 6) // again: twice as long
	h.want(15.9, 31)
	h.want(16)
	h.fail(unserved, 31, 0, 20)
	h.want(39.9, 31)
	h.want(40)
	h.fail(internalError, 31, 0, 50)
	h.want(79.9, 31) // no longer than that
	h.want(80)
	h.worked(31, 0, 50) // sent no later than the failure
	h.fail(unserved, 31, 0, 81)
	h.want(110.9, 31)
	h.worked(31, 0, 82)
	h.want(83)
	h.fail(unserved, 31, 0, 83) // begins anew
	h.want(83)
	h.worked(31, 0, 82) // it does answer
	h.fail(unserved, 31, 0, 84)
	h.want(84)
	h.fail(unserved, 31, 0, 85)
	h.want(89.9, 31)
	h.want(90)
	h.fail(unserved, 31, 0, 85+61) // so does one after a long time
	h.want(85 + 61)
}

// TestRowsOfFailures: how many of which kind make an endpoint avoided.
func TestRowsOfFailures(t *testing.T) {
	h := &history{t: t, p: poolOf(t, aggregates(6))}
	h.fail(internalError, 31, 0, 0)
	h.fail(internalError, 31, 0, 0)
	h.want(0)
	h.worked(31, 0, 0)
	h.fail(internalError, 31, 0, 0)
	h.fail(internalError, 31, 0, 0)
	h.want(0)
	h.fail(internalError, 31, 0, 0)
	h.want(0, 31)
	refuse := func(second float64) {
		h.f.fail(outcome{sent: at(second), endpoint: party{at: h.endpoint(32)}, severity: unserved, own: true}, at(second))
	}
	refuse(0)
	refuse(10.1) // a full queue now and then
	h.want(10.1)
	refuse(20.1)
	h.want(20.1, 32)
	crowded := func(second float64) {
		h.f.fail(outcome{sent: at(second), endpoint: party{h.endpoint(33), true}, severity: unserved}, at(second))
	}
	for i := range 20 { // a burst
		crowded(30 + float64(i)/100)
	}
	h.want(30.2)
	crowded(31.1) // nothing was answered since
	h.want(31.1, 33)
}

// TestCulprits: of two workers of a request that failed, the one whose fault it is.
func TestCulprits(t *testing.T) {
	pool := []fleet.Worker{
		worker(11, fleet.Prefill, "10.0.1.1:8000"), worker(12, fleet.Prefill, "10.0.1.2:8000"), worker(13, fleet.Prefill, "10.0.1.3:8000"),
		worker(21, fleet.Decode, "10.0.2.1:8000"), worker(22, fleet.Decode, "10.0.2.2:8000"), worker(23, fleet.Decode, "10.0.2.3:8000"),
	}
	for name, tc := range map[string]struct {
		does func(h *history)
		want []uint64
	}{
		"one failure says nothing":      {func(h *history) { h.fail(unserved, 21, 11, 0) }, nil},
		"the same two: one steps aside": {func(h *history) { h.fail(unserved, 21, 11, 0); h.fail(unserved, 21, 11, 1) }, []uint64{11}},
		"which tells of the other": {func(h *history) {
			h.fail(unserved, 21, 11, 0)
			h.fail(unserved, 21, 11, 1)
			h.fail(unserved, 21, 12, 2)
		}, []uint64{21}},
		"which clears the other": {func(h *history) {
			h.fail(unserved, 21, 11, 0)
			h.fail(unserved, 21, 11, 1)
			h.worked(21, 12, 2)
			h.fail(unserved, 21, 12, 3)
		}, []uint64{11}},
		"there is no other prefill worker": {func(h *history) {
			h.fail(unserved, 21, 11, 0)
			h.fail(unserved, 21, 11, 1)
			h.fail(unserved, 21, 11, 2)
		}, []uint64{21}},
		"a prefill worker, two decodes": {func(h *history) { h.fail(unserved, 21, 11, 0); h.fail(unserved, 22, 11, 1) }, []uint64{11}},
		"a decode worker, two prefills": {func(h *history) { h.fail(unserved, 21, 11, 0); h.fail(unserved, 21, 12, 1) }, []uint64{21}},
		"the decode worker works with another": {func(h *history) {
			h.fail(unserved, 21, 11, 0)
			h.worked(21, 12, 0)
			h.fail(unserved, 21, 11, 1)
		}, []uint64{11}},
		"the prefill worker works with another": {func(h *history) {
			h.fail(unserved, 21, 11, 0)
			h.worked(22, 11, 0)
			h.fail(unserved, 21, 11, 1)
		}, []uint64{21}},
		"both work": {func(h *history) {
			h.fail(unserved, 21, 11, 0)
			h.worked(21, 11, 0)
			h.fail(unserved, 21, 11, 1)
		}, nil},
		"the known one is blamed alone": {func(h *history) {
			h.fail(unserved, 21, 11, 0)
			h.fail(unserved, 22, 11, 0)
			for second := range 4 {
				h.fail(unserved, 21, 11, float64(second))
				h.fail(unserved, 22, 11, float64(second))
				h.fail(unserved, 23, 11, float64(second))
			}
			h.fail(unserved, 21, 12, 4) // the first failure of these two
			h.fail(unserved, 22, 12, 4)
			h.fail(unserved, 22, 13, 4)
		}, []uint64{12}}, // a third of three, the later one of equals; no decode worker
		"sent before one stepped aside": {func(h *history) {
			h.fail(unserved, 21, 11, 0)
			h.fail(unserved, 21, 11, 0)
			h.f.fail(outcome{sent: at(0), endpoint: party{at: h.endpoint(21)}, prefill: party{at: h.endpoint(11)}, severity: unserved}, at(1))
		}, []uint64{11}},
		"a decode worker alone": {func(h *history) { h.fail(unserved, 21, 0, 0); h.fail(unserved, 21, 0, 1) }, []uint64{21}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{t: t, p: poolOf(t, pool)}
			tc.does(h)
			h.want(4, tc.want...)
		})
	}
}

// TestFailuresAreBounded: what is remembered has a bound; what is over makes room, and
// so do suspects.
func TestFailuresAreBounded(t *testing.T) {
	const n = 6 * maxFailures
	h := &history{t: t, p: poolOf(t, manyWorkers(n))}
	for i := range uint64(n) {
		h.fail(unserved, 1000+i, 0, 0)
		if len(h.f.of) > maxFailures {
			t.Fatalf("%d are remembered", len(h.f.of))
		}
	}
	h.want(0)
	for i := range uint64(n) {
		h.fail(unserved, 1000+i, 0, 1)
		h.fail(unserved, 1000+i, 0, 1)
	}
	if got := len(h.f.avoid(nil, h.p, at(1))); got != maxFailures {
		t.Errorf("%d are avoided, want %d", got, maxFailures)
	}
	h.fail(unserved, 1000+n-1, 0, 62)
	h.fail(unserved, 1000+n-1, 0, 62)
	h.want(62, 1000+n-1)
}

// TestAvoidsAThird: however many fail, the others do not get all the load of a role.
func TestAvoidsAThird(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 1, 3: 1, 5: 1, 6: 2, 30: 10} {
		h := &history{t: t, p: poolOf(t, append(manyWorkers(n), worker(21, fleet.Decode, "10.0.2.1:8000")))}
		for i := range uint64(n) {
			h.fail(unserved, 1000+i, 0, 0)
			h.fail(unserved, 1000+i, 0, float64(i)/1000)
		}
		h.fail(unserved, 21, 0, 0)
		h.fail(unserved, 21, 0, 0)
		ids := []uint64{21}
		for i := range uint64(want) {
			ids = append(ids, uint64(1000+n-want)+i) // those that failed last
		}
		h.want(1, ids...)
	}
	h := &history{t: t, p: poolOf(t, aggregates(3))}
	for _, id := range []uint64{31, 31, 31, 32, 32} {
		h.fail(internalError, id, 0, 0)
	}
	h.fail(internalError, 32, 0, 1)
	h.fail(unserved, 31, 0, 6) // more often
	h.fail(unserved, 32, 0, 1)
	h.want(6, 31)
}

// TestForgetsWhoLeft: an endpoint that comes back begins anew.
func TestForgetsWhoLeft(t *testing.T) {
	l := newRig(t, aggregates(3))
	h := &history{t: t, p: poolOf(t, aggregates(3))}
	e := h.endpoint(31)
	for range 2 {
		l.server.failures.fail(outcome{endpoint: party{at: e}, severity: unserved}, at(0))
	}
	if got := l.server.failures.avoid(nil, h.p, at(0)); len(got) != 1 {
		t.Fatalf("avoided are %v", got)
	}
	l.server.Retain(h.p)
	if got := l.server.failures.avoid(nil, h.p, at(0)); len(got) != 1 {
		t.Errorf("avoided are %v, while it is in the pool", got)
	}
	l.server.Retain(poolOf(t, aggregates(3)[1:]))
	if got := l.server.failures.avoid(nil, h.p, at(0)); len(got) != 0 {
		t.Errorf("avoided are %v, though it left the pool", got)
	}
}

// withServed names who served, as gateways do.
func withServed(m *request, endpoint string) *request {
	if endpoint != "" {
		m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{
			"upstream.address": structpb.NewStringValue(endpoint),
		}}}
	}
	return m
}

// TestAnswersOfEndpoints: what an answer says of the picked endpoint, and where the
// request is booked from then on.
func TestAnswersOfEndpoints(t *testing.T) {
	const picked, other, stranger = "10.0.3.1:8000", "10.0.3.2:8000", "192.0.2.1:8000"
	for name, tc := range map[string]struct {
		status, served string
		avoided        []string
		booked         uint64 // the worker; 0: none
	}{
		"good":                        {"200", picked, nil, 31},
		"good, nobody says who":       {"200", "", nil, 31},
		"refused by the worker":       {"400", picked, nil, 31},
		"error of the worker":         {"501", picked, nil, 31},
		"500 of the worker":           {"500", picked, nil, 31},
		"502":                         {"502", picked, []string{picked}, 0},
		"504":                         {"504", picked, []string{picked}, 0},
		"503 of the worker":           {"503", picked, []string{picked}, 0},
		"503 of the gateway":          {"503", "", []string{picked}, 0},
		"another served":              {"200", other, []string{picked}, 32},
		"another could not either":    {"503", other, []string{picked, other}, 0},
		"an address between":          {"200", stranger, nil, 31},
		"an address between fails":    {"503", stranger, nil, 31},
		"no status that can be read":  {"", picked, nil, 31},
		"a status that cannot be had": {"5030", "", nil, 31},
	} {
		t.Run(name, func(t *testing.T) {
			l := startRig(t, aggregates(6), func(c *Config) { c.Now = func() time.Time { return begin } })
			for _, w := range []string{picked, other} { // one more makes it avoided
				l.server.failures.fail(outcome{endpoint: party{at: netip.MustParseAddrPort(w)}, severity: unserved}, begin)
			}
			e := l.open(t)
			e.routed(withSubset(headersMsg("POST", completions, false), structpb.NewStringValue(picked)), prompt16)
			e.send(withServed(answerHeadersMsg(tc.status, false), tc.served))
			e.want("response headers")
			got := []string{}
			for _, a := range l.server.failures.avoid(nil, l.picker.Fleet(), begin) {
				got = append(got, a.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.avoided) {
				t.Errorf("avoided are %v, want %v", got, tc.avoided)
			}
			if n := l.metric(t, "warmpath_endpoint_failures_total"); n != float64(len(tc.avoided)) {
				t.Errorf("%v failures counted, want %d", n, len(tc.avoided))
			}
			l.load.Read(func(k fleet.Key, f load.Figures) {
				want := load.Figures{}
				if k.ID == tc.booked {
					want = load.Figures{PrefillTokens: 16, DecodeBlocks: 4, Requests: 1}
				}
				if f != want {
					t.Errorf("worker %s has %+v, want %+v", k, f, want)
				}
			})
			e.send(answerBodyMsg("data", false))
			e.want("response body 4")
			if got := l.total().PrefillTokens; got != 0 {
				t.Errorf("%d tokens are to be computed after the first output", got)
			}
			e.cancel()
			l.waitIdle(t)
		})
	}
}

// TestFailingFastAttractsNobody: a worker that refuses at once has always the least
// load. After two failures it gets one request each time it may be tried again.
func TestFailingFastAttractsNobody(t *testing.T) {
	now := begin
	l := startRig(t, aggregates(3), func(c *Config) { c.Now = func() time.Time { return now } })
	const bad = "10.0.3.1:8000"
	ask := func() bool {
		e := l.ask(t)
		reply := e.next()
		for !streamedBody(e.next()).GetEndOfStream() {
		}
		refused := destination(t, reply) == bad
		code := "200"
		if refused {
			code = "503"
		}
		e.send(answerHeadersMsg(code, refused))
		e.want("response headers")
		if refused {
			e.cancel() // the others go on for long
			eventually(t, "it ends", func() bool {
				return l.metric(t, "warmpath_streams") == l.metric(t, "warmpath_responses_total", "class", "2xx")
			})
		}
		return refused
	}
	failed := []int{}
	for second := range 60 {
		now = at(float64(second))
		for range 3 {
			if ask() {
				failed = append(failed, second)
			}
		}
	}
	// It is tried again when a pause of 5, 10, 20 and 30 s is over.
	if len(failed) != 5 || failed[1] > 2 {
		t.Fatalf("requests failed in seconds %v, want two at the start and three later ones", failed)
	}
	for i, pause := range []int{5, 10, 20} {
		if got := failed[i+2] - failed[i+1]; got != pause {
			t.Errorf("requests failed in seconds %v, want them %d s apart where they are %d", failed, pause, got)
		}
	}
	// Where there is nobody else it is taken all the same.
	e := l.open(t)
	e.routed(withSubset(headersMsg("POST", completions, false), structpb.NewStringValue(bad)), newPrompt())
	if got := fmt.Sprint(len(l.server.failures.avoid(nil, l.picker.Fleet(), now))); got != "1" {
		t.Errorf("%s are avoided, want 1", got)
	}
}

// TestDeadWorkerIsFound: whichever worker is dead, and whoever is picked with it, it is
// avoided after three failures, and no other worker is for longer than that takes.
func TestDeadWorkerIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := map[fleet.Role][]uint64{}
		var pool []fleet.Worker
		for role, base := range map[fleet.Role]uint64{fleet.Prefill: 10, fleet.Decode: 20} {
			for i := range uint64(rapid.IntRange(2, 4).Draw(t, role.String())) {
				ids[role] = append(ids[role], base+i)
				pool = append(pool, worker(base+i, role, fmt.Sprintf("10.0.0.%d:8000", base+i)))
			}
		}
		s, err := fleet.NewSnapshot(pool)
		if err != nil {
			t.Fatal(err)
		}
		dead := rapid.SampledFrom(append(slices.Clone(ids[fleet.Prefill]), ids[fleet.Decode]...)).Draw(t, "dead")
		var f failures
		avoided := func(second float64) (out []uint64) {
			for _, e := range f.avoid(nil, s, at(second)) {
				k, _ := workerAt(s, e)
				out = append(out, k.ID)
			}
			return out
		}
		failed := 0
		for i := range 40 {
			second := float64(i) / 10 // all within the first pause
			out := avoided(second)
			pick := func(role fleet.Role) (uint64, netip.AddrPort) {
				from := slices.DeleteFunc(slices.Clone(ids[role]), func(id uint64) bool { return slices.Contains(out, id) })
				id := rapid.SampledFrom(from).Draw(t, "picked")
				at, _ := s.Index(fleet.Key{ID: id})
				return id, s.Workers[at].Endpoint
			}
			p, atP := pick(fleet.Prefill)
			d, atD := pick(fleet.Decode)
			if p != dead && d != dead {
				f.worked(at(second), atD, atP)
			} else {
				failed++
				f.fail(outcome{sent: at(second), endpoint: party{at: atD}, prefill: party{at: atP}, severity: unserved}, at(second))
			}
			after := avoided(second)
			if failed >= 3 && !slices.Equal(after, []uint64{dead}) {
				t.Fatalf("after %d failures %d are avoided, want %d", failed, after, dead)
			}
			if len(after) > 1 || len(after) == 1 && after[0] != dead && after[0] >= 20 {
				t.Fatalf("%d are avoided, while %d is dead", after, dead)
			}
		}
		if failed > 3 {
			t.Fatalf("%d requests failed", failed)
		}
	})
}
