package extproc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// board notes all that is announced.
type board struct {
	mu       sync.Mutex
	requests []*posted
	broken   string // the step that panics
}

// posted is one request on the board.
type posted struct {
	board *board
	Placement
	steps []string // after it was placed
}

// Placed implements Announcer.
func (b *board) Placed(p Placement) Announcement {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.Chains = append([]block.Chain(nil), p.Chains...) // they are lent
	r := &posted{board: b, Placement: p}
	b.requests = append(b.requests, r)
	if b.broken == "placed" {
		panic("of the test")
	}
	return r
}

func (r *posted) step(name string) {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	r.steps = append(r.steps, name)
	if r.board.broken == name {
		panic("of the test")
	}
}

// PrefillDone implements Announcement.
func (r *posted) PrefillDone() { r.step("prefill done") }

// Finished implements Announcement.
func (r *posted) Finished() { r.step("finished") }

// steps returns what was called for each request.
func (b *board) steps() (all [][]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		all = append(all, slices.Clone(r.steps))
	}
	return all
}

func withBoard(b *board) func(*Config) { return func(c *Config) { c.Announcer = b } }

var (
	unanswered = [][]string{{"finished"}}
	answered   = [][]string{{"prefill done", "finished"}}
)

// TestEveryEndIsAnnouncedOnce: the ways in which a stream can end after the
// decision.
func TestEveryEndIsAnnouncedOnce(t *testing.T) {
	// Where the picker may see the end before the output, both are right.
	want := map[string][][][]string{
		"whole response, then gone":        {answered},
		"whole response, then half-closed": {answered},
		"gone before the response":         {unanswered},
		"half-closed before the response":  {unanswered},
		"gone in mid-response":             {answered},
		"gone with replies unread":         {answered, unanswered},
		"protocol error":                   {unanswered},
	}
	for _, tc := range ends {
		t.Run(tc.name, func(t *testing.T) {
			b := &board{}
			l := startRig(t, lifePool(), withBoard(b))
			e := l.open(t)
			e.routed(headersMsg("POST", completions, false), prompt16)
			if got := b.steps(); !slices.EqualFunc(got, [][]string{nil}, slices.Equal) {
				t.Errorf("before the end: %q, want one request that is placed", got)
			}
			tc.end(e)
			l.waitIdle(t)
			got := b.steps()
			if !slices.ContainsFunc(want[tc.name], func(w [][]string) bool { return cmp.Equal(w, got) }) {
				t.Errorf("%q, want %q", got, want[tc.name])
			}
		})
	}
}

// TestOtherEndsAreAnnouncedOnce: those that only a stream in memory, or the server
// itself, can bring about.
func TestOtherEndsAreAnnouncedOnce(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	post := func() *request { return duplexModes.first(headersMsg("POST", otherPath, true)) }
	output := func() *request { return answerBodyMsg("data", false) }
	for name, tc := range map[string]struct {
		stream *failing
		broken string
		want   [][]string
	}{
		"the client left meanwhile":     {&failing{memory: newMemory(gone, post())}, "", unanswered},
		"the decision cannot be sent":   {&failing{memory: newMemory(t.Context(), post()), sendErr: errors.New("broken")}, "", unanswered},
		"the stream breaks":             {&failing{memory: newMemory(t.Context(), post(), output()), err: errors.New("broken")}, "", answered},
		"the end comes twice":           {&failing{memory: newMemory(t.Context(), post(), output(), answerBodyMsg("", true), answerBodyMsg("", true))}, "", answered},
		"a panic while it is placed":    {&failing{memory: newMemory(t.Context(), post())}, "placed", [][]string{nil}},
		"a panic at the first output":   {&failing{memory: newMemory(t.Context(), post(), output())}, "prefill done", answered},
		"a panic at the end of it":      {&failing{memory: newMemory(t.Context(), post(), output())}, "finished", answered},
		"output of nothing":             {&failing{memory: newMemory(t.Context(), post(), answerBodyMsg("", true))}, "", unanswered},
		"a request in the middle of it": {&failing{memory: newMemory(t.Context(), post(), output(), post())}, "", answered},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.stream.err == nil {
				tc.stream.err = status.Error(codes.Canceled, "gone")
			}
			b := &board{broken: tc.broken}
			r := newRig(t, lifePool(), withBoard(b))
			func() {
				defer func() {
					if v := recover(); (v != nil) != (tc.broken != "") {
						t.Errorf("panic %v", v)
					}
				}()
				r.server.Process(tc.stream) //nolint:errcheck // how it ends is told by others
			}()
			if got := b.steps(); !cmp.Equal(tc.want, got) {
				t.Errorf("%q, want %q", got, tc.want)
			}
			r.waitIdle(t)
		})
	}
	t.Run("cut by the drain", func(t *testing.T) {
		b := &board{}
		l := startRig(t, lifePool(), withBoard(b))
		e := l.open(t)
		e.routed(headersMsg("POST", completions, false), prompt16)
		l.stop()
		l.waitEnd(t)
		l.waitIdle(t)
		if got := b.steps(); !cmp.Equal(unanswered, got) {
			t.Errorf("%q, want %q", got, unanswered)
		}
		if err := e.ended(); err == nil {
			t.Error("the stream was not cut")
		}
	})
}

// TestNothingToAnnounce: requests that are placed nowhere.
func TestNothingToAnnounce(t *testing.T) {
	for name, tc := range map[string]struct {
		pool []fleet.Worker
		in   []*request
	}{
		"no prompt":             {lifePool(), []*request{duplexModes.first(headersMsg("GET", otherPath, true))}},
		"a body that is wrong":  {lifePool(), []*request{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg("{", true)}},
		"no worker":             {nil, []*request{duplexModes.first(headersMsg("POST", otherPath, true))}},
		"gone before the end":   {lifePool(), []*request{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg("{", false)}},
		"an answer but no body": {lifePool(), []*request{duplexModes.first(headersMsg("POST", completions, false)), answerBodyMsg("504", true)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &board{}
			r := newRig(t, tc.pool, withBoard(b))
			if err := r.server.Process(newMemory(t.Context(), tc.in...)); err != nil {
				t.Fatal(err)
			}
			if got := b.steps(); got != nil {
				t.Errorf("announced: %q", got)
			}
			r.waitIdle(t)
		})
	}
}

// TestWhatIsAnnounced: the decision in the terms of other routers.
func TestWhatIsAnnounced(t *testing.T) {
	prompt18 := count(1, 18)
	chains := func(adapter, salt string) []block.Chain {
		return block.AppendChains(nil, block.Layout{Size: blockSize}.AppendHashes(nil, prompt18, block.NewSeed(adapter, salt)))
	}
	p1, d1, agg := fleet.Key{ID: 11}, fleet.Key{ID: 21, Rank: 3}, fleet.Key{ID: 31}
	lora := func(c *Config) { c.Adapters = map[string]bool{"m": true} }
	for name, tc := range map[string]struct {
		pool   []fleet.Worker
		body   string // empty: none
		change func(*Config)
		holds  int // tokens of the prompt that the worker has cached
		want   Placement
	}{
		"a pair": {splitPool(), tokenBody(prompt18, ""), nil, 8, Placement{Prefill: p1, Decode: d1, PrefillTokens: 10, Blocks: 4, Chains: chains("", "")}},
		"aggregated": {aggregatedPool(), tokenBody(prompt18, ""), nil, 0, Placement{
			Prefill: agg, Decode: agg, PrefillTokens: 18, Blocks: 4, Chains: chains("", ""),
		}},
		"all cached": {aggregatedPool(), tokenBody(prompt18, ""), nil, 16, Placement{
			Prefill: agg, Decode: agg, PrefillTokens: 2, Blocks: 4, Chains: chains("", ""),
		}},
		"a decode worker alone": {decodePool(), tokenBody(prompt18, ""), nil, 0, Placement{
			Prefill: d1, Decode: d1, PrefillTokens: 18, Blocks: 4, Chains: chains("", ""),
		}},
		"an adapter and a salt": {aggregatedPool(), tokenBody(prompt18, `"cache_salt":"s",`), lora, 0, Placement{
			Adapter: "m", Prefill: agg, Decode: agg, PrefillTokens: 18, Blocks: 4, Chains: chains("m", "s"),
		}},
		"a text without a tokenizer": {aggregatedPool(), `{"model":"m","prompt":"` + string(make40()) + `"}`, nil, 0, Placement{
			Prefill: agg, Decode: agg, PrefillTokens: 10, Blocks: 2,
		}},
		"a body that is not read": {aggregatedPool(), "", lora, 0, Placement{Prefill: agg, Decode: agg}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &board{}
			change := []func(*Config){withBoard(b), func(c *Config) { c.Handoff = DynamoHandoff() }}
			if tc.change != nil {
				change = append(change, tc.change)
			}
			r := newRig(t, tc.pool, change...)
			if tc.holds > 0 {
				r.hold(t, tc.want.Prefill, prompt18[:tc.holds], block.NewSeed("", ""))
			}
			// A request before it leaves nothing of itself behind.
			r.serve(t, completions, tokenBody(count(900, 7), `"cache_salt":"x",`))
			in := []*request{duplexModes.first(headersMsg("POST", otherPath, true))}
			if tc.body != "" {
				in = []*request{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(tc.body, true)}
			}
			m := newMemory(t.Context(), in...)
			if err := r.server.Process(m); err != nil {
				t.Fatal(err)
			}
			if len(b.requests) != 2 {
				t.Fatalf("%d requests announced, want 2", len(b.requests))
			}
			tc.want.RequestID = requestID
			if diff := cmp.Diff(tc.want, b.requests[1].Placement); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// make40 is a text of 40 letters.
func make40() []byte { return slices.Repeat([]byte("x"), 40) }

// TestAnnouncedID: it is the one that the worker gets; and one of its own where the
// worker gets none.
func TestAnnouncedID(t *testing.T) {
	twice := Handoff{{"x-one", RequestID}, {"x-two", RequestID}}
	for name, tc := range map[string]struct {
		handoff Handoff
		headers []string
	}{
		"Dynamo": {DynamoHandoff(), []string{"x-dynamo-request-id"}},
		"twice":  {twice, []string{"x-one", "x-two"}},
		"none":   {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := &board{}
			drawn := 0
			r := newRig(t, splitPool(), withBoard(b), func(c *Config) {
				c.Handoff = tc.handoff
				c.RequestID = func() string { drawn++; return fmt.Sprint("id ", drawn) }
			})
			for i := range 3 {
				m := newMemory(t.Context(), duplexModes.first(headersMsg("POST", otherPath, true)))
				if err := r.server.Process(m); err != nil {
					t.Fatal(err)
				}
				want := fmt.Sprint("id ", i+1)
				if got := b.requests[i].RequestID; got != want {
					t.Errorf("request %d is announced as %q, want %q", i, got, want)
				}
				set := setHeaders(t, m.out[1][0])
				for _, h := range tc.headers {
					if set[h] != want {
						t.Errorf("%s is %q, want %q", h, set[h], want)
					}
				}
			}
		})
	}
}

// TestManyStreamsAreAnnounced holds many requests at once.
func TestManyStreamsAreAnnounced(t *testing.T) {
	b := &board{}
	l := startRig(t, lifePool(), withBoard(b), withTokenizer(func(_ context.Context, dst []uint32, _ prompt.Kind, _ []byte) ([]uint32, error) {
		return append(dst, count(1, 16)...), nil
	}))
	const n = 64
	var wg sync.WaitGroup
	for i := range n {
		e := l.open(t)
		wg.Go(func() {
			e.send(duplexModes.first(headersMsg("POST", chat, false)))
			e.send(bodyMsg(helloChat, true))
			if describe(e.next()) != "request headers routed" || !streamedBody(e.next()).GetEndOfStream() {
				t.Errorf("stream %d: no decision", i)
				return
			}
			ends[i%len(ends)].end(e)
		})
	}
	wg.Wait()
	l.waitIdle(t)
	all := b.steps()
	if len(all) != n {
		t.Errorf("%d requests announced, want %d", len(all), n)
	}
	for _, steps := range all {
		if !slices.Equal(steps, answered[0]) && !slices.Equal(steps, unanswered[0]) {
			t.Errorf("a request went through %q", steps)
		}
	}
}

// TestWorkersWordOnARequest: a worker that was told the id of a request says by it
// that the prompt is computed.
func TestWorkersWordOnARequest(t *testing.T) {
	for name, tc := range map[string]struct {
		handoff Handoff
		want    int // tokens that still count
	}{
		"Dynamo":               {DynamoHandoff(), 0},
		"a handoff without id": {DefaultHandoff(), 16},
	} {
		t.Run(name, func(t *testing.T) {
			l := startRig(t, lifePool(), func(c *Config) { c.Handoff = tc.handoff })
			engines := load.NewEngines()
			engines.Feed(l.load)
			e := l.open(t)
			e.routed(headersMsg("POST", completions, false), prompt16)
			for _, w := range lifePool() {
				engines.Route(w.Key, load.Routed{Kind: load.PrefillDone, Request: []byte(requestID), Router: w.ID}, time.Unix(1000, 0))
			}
			if got, want := l.total(), (load.Figures{PrefillTokens: tc.want, DecodeBlocks: 4, Requests: 1}); got != want {
				t.Errorf("booked %+v, want %+v", got, want)
			}
			e.cancel()
			l.waitIdle(t)
		})
	}
}
