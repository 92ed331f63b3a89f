package simengine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// listener hears what workers publish, and builds from it what a worker holds.
type listener struct {
	mu       sync.Mutex
	decoder  dynamo.Decoder
	subjects map[string]int
	sizes    []int // events per message
	envs     []dynamo.Envelope
	events   []string // kinds, in order
	stored   int      // blocks stored
	removed  int      // blocks removed
	lastID   uint64
	blocks   map[kvevent.EngineHash]heard
	problem  error
}

type heard struct {
	hash  block.Hash
	chain block.Chain
}

func listen(t *testing.T, conn *nats.Conn) *listener {
	t.Helper()
	l := &listener{subjects: map[string]int{}, blocks: map[kvevent.EngineHash]heard{}}
	for _, subject := range dynamo.KVEventSubjects() {
		if _, err := conn.Subscribe(subject, l.message); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *listener) message(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	subject, err := dynamo.ParseSubject(m.Subject)
	if err != nil {
		l.problem = errors.Join(l.problem, err)
		return
	}
	n := 0
	env, err := l.decoder.Decode(m.Data, subject.Scope, func(ev *kvevent.Event) {
		n++
		if err := l.apply(ev); err != nil {
			l.problem = errors.Join(l.problem, fmt.Errorf("event %d: %w", ev.ID, err))
		}
	})
	l.problem = errors.Join(l.problem, err)
	l.subjects[m.Subject]++
	l.sizes = append(l.sizes, n)
	l.envs = append(l.envs, env)
}

// apply is as strict as an index could be: no unknown parent, nothing twice.
func (l *listener) apply(ev *kvevent.Event) error {
	if ev.ID != l.lastID+1 {
		return fmt.Errorf("comes after %d", l.lastID)
	}
	l.lastID = ev.ID
	l.events = append(l.events, ev.Kind.String())
	switch ev.Kind {
	case kvevent.Stored:
		parent, ok := l.blocks[ev.Parent]
		if ev.HasParent && !ok {
			return fmt.Errorf("unknown parent %d", ev.Parent)
		}
		if len(ev.Blocks) == 0 {
			return errors.New("stores nothing")
		}
		for i, b := range ev.Blocks {
			if _, twice := l.blocks[b.Engine]; twice {
				return fmt.Errorf("block %d stored twice", b.Engine)
			}
			chain := block.Root(b.Hash)
			if i > 0 || ev.HasParent {
				chain = parent.chain.Next(b.Hash)
			}
			parent = heard{hash: b.Hash, chain: chain}
			l.blocks[b.Engine] = parent
			l.stored++
		}
	case kvevent.Removed:
		for _, h := range ev.Gone {
			if _, ok := l.blocks[h]; !ok {
				return fmt.Errorf("removes unknown block %d", h)
			}
			delete(l.blocks, h)
			l.removed++
		}
	case kvevent.Cleared:
		clear(l.blocks)
	}
	return nil
}

// settle waits until everything the worker queued has been heard.
func (l *listener) settle(t *testing.T, e *Engine) {
	t.Helper()
	eventually(t, "all events are heard", func() bool {
		e.pub.mu.Lock()
		last := e.pub.lastID
		e.pub.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.problem != nil || l.lastID == last
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem != nil {
		t.Fatal(l.problem)
	}
}

// same compares what was heard with what the worker holds.
func (l *listener) same(t *testing.T, e *Engine) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(l.blocks) != len(e.cache.entries) {
		t.Errorf("heard of %d blocks, the worker holds %d", len(l.blocks), len(e.cache.entries))
	}
	for chain, entry := range e.cache.entries {
		if got, want := l.blocks[e.cache.engineHash(chain)], (heard{entry.hash, chain}); got != want {
			t.Errorf("block %x: heard %x, want %x", chain, got, want)
		}
	}
}

// conversations sends random multi-turn traffic that shares prefixes and does
// not fit into the cache.
func conversations(t *testing.T, e *Engine, seed uint64, requests int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for range requests {
		prompt := ids(r.IntN(3), 16+r.IntN(32))
		for range r.IntN(3) {
			prompt = append(prompt, ids(10+r.IntN(4), 1+r.IntN(40))...)
		}
		want := r.IntN(40) + 1
		a, _ := complete(t, e, completions, object{"prompt": prompt, "max_tokens": want, "ignore_eos": true})
		if a.Usage.CompletionTokens != want || a.Usage.PromptTokens != len(prompt) {
			t.Fatalf("usage %+v for %d prompt tokens and max_tokens %d", a.Usage, len(prompt), want)
		}
	}
}

func TestEventsTellWhatTheCacheHolds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		gen     dynamo.Generation
		role    fleet.Role
		subject string
	}{
		{"1.2 aggregated", dynamo.Gen12, fleet.Aggregated, "namespace.dynamo.component.backend.kv-events"},
		{"1.4 prefill", dynamo.Gen14, fleet.Prefill, "namespace.dynamo.component.prefill.endpoint.generate.kv-events"},
		{"1.5 aggregated", dynamo.Gen15, fleet.Aggregated, "namespace.dynamo.component.backend.endpoint.generate.kv-events"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := startNATS(t)
			l := listen(t, connect(t, url))
			e := start(t, Config{Generation: tc.gen, Role: tc.role, NATSURL: url, Blocks: 40, BlockSize: 4, Rank: 3})
			var clients sync.WaitGroup
			for i := range 3 {
				clients.Go(func() { conversations(t, e, uint64(i), 40) })
			}
			clients.Wait()
			l.settle(t, e)
			l.same(t, e)
			if l.removed == 0 || l.stored == 0 {
				t.Fatalf("%d blocks stored, %d removed: the traffic shows nothing", l.stored, l.removed)
			}
			if len(l.subjects) != 1 || l.subjects[tc.subject] == 0 {
				t.Errorf("subjects %v, want only %s", l.subjects, tc.subject)
			}
			l.checkEnvelopes(t, e, tc.gen)

			if r := call(t, e, http.MethodPost, "/reset_prefix_cache", ""); r.status != http.StatusOK {
				t.Fatalf("reset: %d %s", r.status, r.body)
			}
			l.settle(t, e)
			l.same(t, e)
			if last := l.events[len(l.events)-1]; last != "cleared" || len(l.blocks) != 0 {
				t.Errorf("after the reset: event %q, %d blocks", last, len(l.blocks))
			}
			// An event is heard before it counts.
			eventually(t, "all events that are heard count", func() bool { return e.Stats().EventsPublished == l.lastID })
			if s := e.Stats(); s.EventsLost != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func (l *listener) checkEnvelopes(t *testing.T, e *Engine, gen dynamo.Generation) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, env := range l.envs {
		if env.Sequence != uint64(i) || env.PublishedAt == 0 {
			t.Fatalf("envelope %d: %+v", i, env)
		}
		if own := env.PublisherID == e.cfg.WorkerID; own != (gen == dynamo.Gen12) || env.PublisherID != l.envs[0].PublisherID {
			t.Fatalf("envelope %d: publisher id %d of worker %d", i, env.PublisherID, e.cfg.WorkerID)
		}
		if env.PublisherID >= 1<<53 {
			t.Fatalf("publisher id %d has more than 53 bits", env.PublisherID)
		}
	}
	if most := slices.Max(l.sizes); most > batchEvents || (gen == dynamo.Gen12 && most > 1) {
		t.Errorf("a message with %d events", most)
	}
}

func TestEventsOfOneStepShareAMessageFromGen14On(t *testing.T) {
	for gen, want := range map[dynamo.Generation][]int{dynamo.Gen12: {1, 1, 1}, dynamo.Gen14: {2}, dynamo.Gen15: {2}} {
		url := startNATS(t)
		conn := connect(t, url)
		l := listen(t, conn)
		p := newPublisher(Config{Generation: gen, Namespace: "n", Component: "c", Endpoint: "e", Role: fleet.Prefill}.withDefaults(),
			conn.Publish, rand.New(rand.NewPCG(1, 2)))
		c := newCache(10, 1)
		first, _, _ := c.acquire(pathOf([]uint64{1, 2}))
		p.add(nil, c.commit(first))
		p.drain()
		second, _, _ := c.acquire(pathOf([]uint64{1, 2, 3, 4}))
		c.release(first)
		came := c.commit(second)
		gone := []kvevent.EngineHash{c.engineHash(pathOf([]uint64{1, 2})[1].chain), c.engineHash(pathOf([]uint64{1})[0].chain)}
		p.add(gone, came)
		p.drain()
		eventually(t, "all messages are heard", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.sizes) == 1+len(want)
		})
		l.mu.Lock()
		if !slices.Equal(l.sizes[1:], want) {
			t.Errorf("generation %v: messages of %v events, want %v", gen, l.sizes[1:], want)
		}
		l.mu.Unlock()
	}
}

func TestStoredEventsSplitWhereTheParentChainBreaks(t *testing.T) {
	c := newCache(2*stepBlocks, 1)
	var sent [][]byte
	p := newPublisher(Config{Generation: dynamo.Gen12}.withDefaults(),
		func(_ string, data []byte) error { sent = append(sent, slices.Clone(data)); return nil }, nil)
	a, _, _ := c.acquire(pathOf([]uint64{1, 2}))
	b, _, _ := c.acquire(pathOf([]uint64{5, 6, 7}))
	p.add(nil, append(c.commit(a), c.commit(b)...))
	contents := make([]uint64, stepBlocks+1)
	for i := range contents {
		contents[i] = 100 + uint64(i)
	}
	long, _, _ := c.acquire(pathOf(contents))
	p.add(nil, c.commit(long))
	p.drain()
	var sizes []int
	l := &listener{blocks: map[kvevent.EngineHash]heard{}}
	for _, data := range sent {
		if _, err := l.decoder.Decode(data, dynamo.ComponentScope, func(ev *kvevent.Event) {
			sizes = append(sizes, len(ev.Blocks))
			if err := l.apply(ev); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{2, 3, stepBlocks, 1}; !slices.Equal(sizes, want) {
		t.Errorf("events of %v blocks, want %v", sizes, want)
	}
}

func TestLostEventsLeaveAGap(t *testing.T) {
	fail := true
	var sent [][]byte
	p := newPublisher(Config{Generation: dynamo.Gen14}.withDefaults(), func(_ string, data []byte) error {
		if fail {
			return errors.New("no room")
		}
		sent = append(sent, slices.Clone(data))
		return nil
	}, rand.New(rand.NewPCG(1, 2)))
	p.cleared()
	p.drain()
	fail = false
	p.cleared()
	p.drain()
	var d dynamo.Decoder
	env, err := d.Decode(sent[0], dynamo.EndpointScope, func(ev *kvevent.Event) {
		if ev.ID != 2 {
			t.Errorf("event id %d, want 2", ev.ID)
		}
	})
	if err != nil || env.Sequence != 1 || p.lost.Load() != 1 || p.published.Load() != 1 {
		t.Errorf("%v, %+v, lost %d, published %d", err, env, p.lost.Load(), p.published.Load())
	}
}

func TestDecodeWorkersPublishNothing(t *testing.T) {
	url := startNATS(t)
	conn := connect(t, url)
	l := listen(t, conn)
	e := start(t, Config{Role: fleet.Decode, NATSURL: url, BlockSize: 4})
	first, _ := complete(t, e, completions, object{"prompt": ids(1, 40)})
	again, _ := complete(t, e, completions, object{"prompt": ids(1, 40)})
	if first.Usage.PromptTokensDetails.CachedTokens != 0 || again.Usage.PromptTokensDetails.CachedTokens != 36 {
		t.Errorf("cached %+v then %+v, want 0 then 36", first.Usage.PromptTokensDetails, again.Usage.PromptTokensDetails)
	}
	if err := e.Clear(); err != nil {
		t.Fatal(err)
	}
	if e.pub != nil || conn.FlushTimeout(patience) != nil || len(l.envs) != 0 {
		t.Errorf("heard %v", l.envs)
	}
}

func TestWorkerOutlivesNATS(t *testing.T) {
	e := start(t, Config{NATSURL: "nats://127.0.0.1:1"})
	if a, _ := complete(t, e, completions, object{"prompt": "hello"}); a.Usage.CompletionTokens != completionTokens {
		t.Errorf("usage %+v", a.Usage)
	}
}

func TestSaltedPromptsShareNothing(t *testing.T) {
	for gen, saltOnWire := range map[dynamo.Generation]bool{dynamo.Gen12: false, dynamo.Gen14: true} {
		e := start(t, Config{Generation: gen, BlockSize: 4})
		plain := object{"prompt": ids(1, 9), "max_tokens": 1}
		salted := object{"prompt": ids(1, 9), "max_tokens": 1, "cache_salt": "s"}
		complete(t, e, completions, plain)
		a, _ := complete(t, e, completions, salted)
		b, _ := complete(t, e, completions, salted)
		if a.Usage.PromptTokensDetails.CachedTokens != 0 || b.Usage.PromptTokensDetails.CachedTokens != 8 {
			t.Errorf("generation %v: cached %+v, then %+v", gen, a.Usage.PromptTokensDetails, b.Usage.PromptTokensDetails)
		}
		long, _ := complete(t, e, completions, object{"prompt": ids(1, 9), "max_tokens": 8, "cache_salt": "s"})
		tokens := appendTokens(ids(1, 9), long.Choices[0].Text)[:16]
		seed, wire := block.NewSeed("", "s"), block.NewSeed("", "")
		if saltOnWire {
			wire = seed
		}
		chains := block.AppendChains(nil, block.Layout{Size: 4}.AppendHashes(nil, tokens, seed))
		announced := block.Layout{Size: 4}.AppendHashes(nil, tokens, wire)
		hashes := map[block.Hash]bool{}
		e.mu.Lock()
		if len(e.cache.entries) != 2+4 {
			t.Errorf("generation %v: %d blocks cached", gen, len(e.cache.entries))
		}
		for i, chain := range chains {
			if entry := e.cache.entries[chain]; entry == nil || entry.hash != announced[i] {
				t.Errorf("generation %v: block %d is %+v, want hash %x", gen, i, entry, announced[i])
			}
		}
		for _, entry := range e.cache.entries {
			hashes[entry.hash] = true
		}
		e.mu.Unlock()
		if got := len(hashes) == 6; got != saltOnWire {
			t.Errorf("generation %v: announced hashes %v", gen, hashes)
		}
	}
}
