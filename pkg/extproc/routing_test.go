package extproc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// another returns a routing that differs from a rig's in its workers and headers,
// over the same load.
func (r *rig) another(tb testing.TB, workers []fleet.Worker, header string) Routing {
	tb.Helper()
	pool, err := fleet.NewSnapshot(workers)
	if err != nil {
		tb.Fatal(err)
	}
	p := pick.New(index.New(), index.NewSpeculation(0), r.load, blockSize)
	if err := p.SetFleet(pool); err != nil {
		tb.Fatal(err)
	}
	return Routing{Picker: p, Layout: block.Layout{Size: blockSize}, Handoff: Handoff{{header, DecodeEndpoint}}}
}

// TestUse: a request ends under the routing that it began under, whatever comes
// meanwhile; the next one begins under the new one, headers of clients included.
func TestUse(t *testing.T) {
	var unused atomic.Int64
	l := startRig(t, aggregatedPool(), func(c *Config) {
		c.Handoff = Handoff{{"x-old", DecodeEndpoint}}
		c.Unused = func() { unused.Add(1) }
	})
	body := tokenBody(count(1, 8), "")
	decided, waiting := l.open(t), l.open(t)
	decided.routed(headersMsg("POST", completions, false), body)
	waiting.send(duplexModes.first(headersMsg("POST", completions, false, "x-old", "forged", "x-new", "kept")))
	waiting.send(bodyMsg(body[:5], false))
	eventually(t, "both requests have begun", func() bool { return l.server.routing.Load().users.Load() == 2 })

	next := l.another(t, decodePool(), "x-new")
	if err := l.server.Use(next); err != nil {
		t.Fatal(err)
	}
	if unused.Load() != 0 {
		t.Fatal("the old routing is given up under a request that waits for its body")
	}
	e := l.open(t)
	reply := e.routed(headersMsg("POST", completions, false, "x-new", "forged", "x-old", "kept"), body)
	checkRouted(t, reply, "10.0.2.1:8000", "x-new")
	waiting.send(bodyMsg(body[5:], true))
	checkRouted(t, waiting.want("request headers routed"), "10.0.3.1:8000", "x-old")
	waiting.want(fmt.Sprintf("request body %d eos", len(body)))
	// The first one still streams, and needs nothing more of it.
	eventually(t, "the old routing is not used any more", func() bool { return unused.Load() == 1 })
	for _, open := range []*envoy{decided, waiting, e} {
		if err := open.finish(); err != nil {
			t.Error(err)
		}
	}
	l.waitIdle(t)
	if unused.Load() != 1 {
		t.Errorf("told %d times that the old routing is not used", unused.Load())
	}
}

// checkRouted wants a destination, and it in a handoff header of that name alone.
func checkRouted(t *testing.T, r *response, destination, handoff string) {
	t.Helper()
	mutation := r.GetRequestHeaders().GetResponse().GetHeaderMutation()
	got := map[string]string{}
	for _, o := range mutation.GetSetHeaders() {
		got[o.GetHeader().GetKey()] = string(o.GetHeader().GetRawValue())
	}
	if len(got) != 2 || got[destinationHeader] != destination || got[handoff] != destination {
		t.Errorf("headers %v, want %s and %s with %s", got, destinationHeader, handoff, destination)
	}
	if removed := mutation.GetRemoveHeaders(); len(removed) != 0 {
		t.Errorf("%v are removed: a header of the other routing is the client's own", removed)
	}
}

// TestUseKeepsAnnouncements: a routing whose announcer was told of a request is
// needed until that was told of the end.
func TestUseKeepsAnnouncements(t *testing.T) {
	b := &board{}
	var unused atomic.Bool
	l := startRig(t, splitPool(), withBoard(b), func(c *Config) { c.Unused = func() { unused.Store(true) } })
	e := l.open(t)
	e.routed(headersMsg("POST", completions, false), tokenBody(count(1, 8), ""))
	if err := l.server.Use(l.another(t, decodePool(), "x-new")); err != nil {
		t.Fatal(err)
	}
	if unused.Load() {
		t.Error("the announcer is given up while a request is open that it told of")
	}
	if err := e.finish(); err != nil {
		t.Error(err)
	}
	eventually(t, "the old routing is not used any more", unused.Load)
	l.waitIdle(t)
}

// TestUseRefuses: a routing that cannot work changes nothing.
func TestUseRefuses(t *testing.T) {
	var unused atomic.Bool
	l := startRig(t, aggregatedPool(), func(c *Config) { c.Unused = func() { unused.Store(true) } })
	good := l.another(t, decodePool(), "x-new")
	for name, change := range map[string]func(*Routing){
		"no picker":     func(r *Routing) { r.Picker = nil },
		"no block size": func(r *Routing) { r.Layout.Size = 0 },
		"bad header":    func(r *Routing) { r.Handoff = Handoff{{"X-Upper", PrefillEndpoint}} },
	} {
		bad := good
		change(&bad)
		if err := l.server.Use(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	e := l.open(t)
	reply := e.routed(headersMsg("POST", completions, false), tokenBody(count(1, 8), ""))
	if got := reply.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()[0].GetHeader().GetRawValue(); string(got) != "10.0.3.1:8000" {
		t.Errorf("picked %s", got)
	}
	if err := e.finish(); err != nil || unused.Load() {
		t.Errorf("end: %v, unused: %v", err, unused.Load())
	}
}

// TestUseUnderLoad: every request is routed by one routing from begin to end, every
// routing is told once that nobody needs it, and never while somebody does, and no
// load is left.
func TestUseUnderLoad(t *testing.T) {
	r := newRig(t, aggregatedPool())
	type watched struct{ busy, ended atomic.Int64 }
	generation := func() (Routing, *watched) {
		w := &watched{}
		next := r.another(t, aggregatedPool(), "x-new")
		next.Tokenizer = inProcess(func(*Prompt) error {
			w.busy.Add(1)
			defer w.busy.Add(-1)
			if w.ended.Load() != 0 {
				t.Error("a request uses a routing that was given up")
			}
			return nil
		})
		next.Unused = func() {
			w.ended.Add(1)
			if n := w.busy.Load(); n != 0 {
				t.Errorf("given up with %d requests in it", n)
			}
		}
		return next, w
	}
	var all []*watched
	use := func() {
		next, w := generation()
		all = append(all, w)
		if err := r.server.Use(next); err != nil {
			t.Error(err)
		}
	}
	use()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				m := newMemory(t.Context(), duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(`{"model":"m","prompt":"hello"}`, true),
					answerHeadersMsg("200", false), answerBodyMsg("x", true))
				if err := r.server.Process(m); err != nil {
					t.Error(err)
				}
				if got := describe(m.all()[0]); got != "request headers routed" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	for range 100 {
		use()
	}
	close(stop)
	wg.Wait()
	for i, w := range all {
		want := int64(1)
		if i == len(all)-1 {
			want = 0 // still the current one
		}
		if got := w.ended.Load(); got != want {
			t.Errorf("routing %d was given up %d times, want %d", i, got, want)
		}
	}
	if sum := r.total(); sum != (load.Figures{}) {
		t.Errorf("load %+v is left", sum)
	}
}
