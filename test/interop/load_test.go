package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// loadWords is what load messages said.
type loadWords struct {
	kinds     map[dynamo.LoadKind]int
	placed    map[string]fleet.Key // request to the worker that a router placed it on
	freed     map[string]bool      // requests that a router told the end of
	routers   map[uint64]bool
	byWorkers int // ends of prefill that workers told
	used      map[fleet.Key]bool
	passes    map[fleet.Key]bool
}

// readLoads reads recorded messages, every one of which must be one that we know
// wholly, on the subject of its topic.
func readLoads(t *testing.T, events []Event) *loadWords {
	t.Helper()
	w := &loadWords{
		kinds: map[dynamo.LoadKind]int{}, placed: map[string]fleet.Key{}, freed: map[string]bool{},
		routers: map[uint64]bool{}, used: map[fleet.Key]bool{}, passes: map[fleet.Key]bool{},
	}
	var d dynamo.LoadDecoder
	for _, m := range events {
		subject, err := dynamo.ParseSubject(m.Subject)
		if err != nil {
			t.Fatal(err)
		}
		_, l, err := d.Decode(m.Data)
		if err != nil {
			t.Fatalf("message on %s: %v\n%x", m.Subject, err, m.Data)
		}
		if n := d.Stats().UnknownFields; n > 0 {
			t.Fatalf("message on %s: %d unknown fields\n%x", m.Subject, n, m.Data)
		}
		if l.Kind.String() != subject.Topic {
			t.Fatalf("message on %s is of topic %s", m.Subject, l.Kind)
		}
		w.kinds[l.Kind]++
		w.take(l)
	}
	return w
}

func (w *loadWords) take(l *dynamo.Load) {
	switch l.Kind {
	case dynamo.LoadMetrics:
		if l.Metrics.UsedBlocks.Set {
			w.used[fleet.Key{ID: l.Metrics.WorkerID, Rank: l.Metrics.Rank}] = true
		}
	case dynamo.LoadForwardPass:
		w.passes[fleet.Key{ID: l.Pass.WorkerID, Rank: l.Pass.Rank}] = true
	case dynamo.LoadSequence:
		e := &l.Sequence
		if e.RouterID == e.WorkerID {
			w.byWorkers++
			return
		}
		w.routers[e.RouterID] = true
		switch e.Kind {
		case dynamo.AddRequest:
			w.placed[string(e.RequestID)] = fleet.Key{ID: e.WorkerID, Rank: e.Rank}
		case dynamo.Free:
			w.freed[string(e.RequestID)] = true
		case dynamo.MarkPrefillCompleted:
		}
	}
}

// loadRig is a stack whose frontend chooses workers itself, and a picker that
// hears of it.
type loadRig struct {
	stack  *Stack
	events *Recorder
	picker *Picker
}

func startLoads(t *testing.T, cfg StackConfig) *loadRig {
	t.Helper()
	cfg.NATSURL, cfg.BlockSize, cfg.Blocks, cfg.Router = StartNATS(t), blockSize, 1024, "kv"
	// At a real engine's pace, so that a long answer lasts until it is given up.
	cfg.Speedup = 1
	r := &loadRig{events: Record(t, cfg.NATSURL, dynamo.TopicKVMetrics, dynamo.TopicForwardPassMetrics, dynamo.TopicActiveSequences)}
	r.stack = StartStack(t, cfg)
	r.picker = StartPicker(t, r.stack, PickerConfig{Binary: pickerBinary(t)})
	return r
}

// request sends a prompt and returns when it is answered, or when ctx ends.
func (r *loadRig) request(ctx context.Context, id string, seed uint64, maxTokens int) error {
	reply, err := Post(ctx, r.stack.FrontendURL(), http.Header{RequestIDHeader: {id}},
		Completion{Model: r.stack.Model(), Prompt: prompt(seed), MaxTokens: maxTokens})
	if err == nil && reply.Status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", reply.Status, reply.Body)
	}
	return err
}

// wait waits until the words heard are as wanted.
func (r *loadRig) wait(t *testing.T, check func(*loadWords) error) *loadWords {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	var w *loadWords
	if err := poll(ctx, func() error {
		w = readLoads(t, r.events.Events())
		return check(w)
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

// hold sends n requests that take long, calls during when the picker counts each of
// them once per pool, gives them up, and waits until none is left.
func (r *loadRig) hold(t *testing.T, n, pools int, during func(w *loadWords)) {
	t.Helper()
	const forever = 4000
	ids := map[string]bool{}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var work errgroup.Group
	for i := range n {
		id := NewRequestID()
		ids[id] = true
		work.Go(func() error {
			if err := r.request(ctx, id, uint64(i), forever); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("a request of %d tokens ended before it was given up: %w", forever, err)
			}
			return nil
		})
	}
	r.picker.waitSum(t, float64(n*pools), "warmpath_foreign_requests")
	during(r.wait(t, func(w *loadWords) error {
		for id := range ids {
			if _, ok := w.placed[id]; !ok {
				return fmt.Errorf("no router has placed request %s", id)
			}
		}
		return nil
	}))
	giveUp()
	if err := work.Wait(); err != nil {
		t.Error(err)
	}
	r.settle(t, ids)
}

// settle waits until routers have told the end of requests, and the picker counts
// none.
func (r *loadRig) settle(t *testing.T, ids map[string]bool) {
	t.Helper()
	r.wait(t, func(w *loadWords) error {
		for id := range ids {
			if !w.freed[id] {
				return fmt.Errorf("no router has freed request %s", id)
			}
		}
		return nil
	})
	r.picker.waitSum(t, 0, "warmpath_foreign_requests")
	r.picker.waitSum(t, 0, "warmpath_foreign_prefill_tokens")
}

func TestLoads(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		r := startLoads(t, StackConfig{Version: version, Ranks: 2, Roles: map[fleet.Role]int{fleet.Aggregated: 2}})
		p := r.picker
		keys := map[fleet.Key]bool{}
		for _, id := range r.stack.Workers(fleet.Aggregated) {
			keys[fleet.Key{ID: id}], keys[fleet.Key{ID: id, Rank: 1}] = true, true
		}
		r.hold(t, 8, 1, func(w *loadWords) {
			// The picker counts them where the router says that they are.
			for key := range keys {
				want := 0
				for id, at := range w.placed {
					if at == key && !w.freed[id] {
						want++
					}
				}
				p.waitSum(t, float64(want), "warmpath_foreign_requests", labelsOf(key)...)
			}
		})

		ids := map[string]bool{}
		for i := range 12 {
			id := NewRequestID()
			ids[id] = true
			if err := r.request(t.Context(), id, uint64(100+i), 4); err != nil {
				t.Fatal(err)
			}
		}
		r.settle(t, ids)

		// What engines say of themselves: blocks in use where something ran, and the
		// queue of every rank, once a second.
		w := r.wait(t, func(w *loadWords) error {
			if len(w.passes) != len(keys) {
				return fmt.Errorf("%d ranks tell of their steps, want %d", len(w.passes), len(keys))
			}
			if len(w.used) == 0 {
				return errors.New("no rank tells of its blocks")
			}
			return nil
		})
		for key := range w.passes {
			if !keys[key] {
				t.Errorf("steps of %s, which is no worker", key)
			}
			p.waitSum(t, 0, "warmpath_engine_queued_requests", labelsOf(key)...)
			p.waitSum(t, 0, "warmpath_engine_queued_prefill_tokens", labelsOf(key)...)
		}
		for key := range w.used {
			if _, err := p.sum(t.Context(), "warmpath_engine_kv_used_blocks", labelsOf(key)...); err != nil {
				t.Error(err)
			}
		}
		if len(w.routers) != 1 {
			t.Errorf("%d routers speak, want one", len(w.routers))
		}
		if told := w.byWorkers > 0; told != releases[version].workersTellPrefill {
			t.Errorf("workers told the end of %d prefills", w.byWorkers)
		}
		p.checkNothingOdd(t)
	})
}
