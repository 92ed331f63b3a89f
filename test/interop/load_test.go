package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// placing is a request on a worker.
type placing struct {
	request string
	worker  fleet.Key
}

// loadWords is what load messages said.
type loadWords struct {
	placed    map[placing]bool // by a router
	freed     map[placing]bool // a router told the end
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
		placed: map[placing]bool{}, freed: map[placing]bool{},
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
		at := placing{string(e.RequestID), fleet.Key{ID: e.WorkerID, Rank: e.Rank}}
		switch e.Kind {
		case dynamo.AddRequest:
			w.placed[at] = true
		case dynamo.Free:
			w.freed[at] = true
		case dynamo.MarkPrefillCompleted:
		}
	}
}

// ended says which of some requests have not been placed, or have been and not freed.
func (w *loadWords) ended(ids map[string]bool) error {
	placed := map[string]bool{}
	for p := range w.placed {
		if !ids[p.request] {
			continue
		}
		placed[p.request] = true
		if !w.freed[p] {
			return fmt.Errorf("no router has freed request %s on %s", p.request, p.worker)
		}
	}
	if len(placed) < len(ids) {
		return fmt.Errorf("routers have placed %d of %d requests", len(placed), len(ids))
	}
	return nil
}

// count returns the requests that are placed on a worker and not freed.
func (w *loadWords) count(key fleet.Key) int {
	n := 0
	for p := range w.placed {
		if p.worker == key && !w.freed[p] {
			n++
		}
	}
	return n
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
	// At a quarter of a real engine's pace a long answer lasts two minutes: until it is
	// given up, also where all that is waited for before takes long.
	cfg.Speedup = 0.25
	r := &loadRig{stack: StartStack(t, cfg)}
	r.picker = StartPicker(t, r.stack, PickerConfig{Binary: pickerBinary(t)})
	// From here on the picker hears whatever is recorded.
	r.events = Record(t, cfg.NATSURL, dynamo.TopicKVMetrics, dynamo.TopicForwardPassMetrics, dynamo.TopicActiveSequences)
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

// lasting says which of some requests do not last yet. In a split pool they do once
// they are on a decode worker, and no longer on the prefill worker.
func (r *loadRig) lasting(w *loadWords, ids map[string]bool) error {
	on := map[string]int{}
	for p := range w.placed {
		if !ids[p.request] || w.freed[p] {
			continue
		}
		if slices.Contains(r.stack.Workers(fleet.Prefill), p.worker.ID) {
			return fmt.Errorf("request %s is on prefill worker %s", p.request, p.worker)
		}
		on[p.request]++
	}
	for id := range ids {
		if on[id] != 1 {
			return fmt.Errorf("request %s is on %d workers, want 1", id, on[id])
		}
	}
	return nil
}

// hold sends n requests that take long, waits until the picker counts each of them
// where its router says that it is, gives them up, and waits until none is left.
func (r *loadRig) hold(t *testing.T, n int) {
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
	w := r.wait(t, func(w *loadWords) error { return r.lasting(w, ids) })
	r.picker.waitSum(t, float64(n), "warmpath_foreign_requests")
	for _, key := range r.keys() {
		r.picker.waitSum(t, float64(w.count(key)), "warmpath_foreign_requests", labelsOf(key)...)
	}
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
	r.wait(t, func(w *loadWords) error { return w.ended(ids) })
	r.picker.waitSum(t, 0, "warmpath_foreign_requests")
	r.picker.waitSum(t, 0, "warmpath_foreign_prefill_tokens")
}

// keys returns all ranks of all workers.
func (r *loadRig) keys() []fleet.Key {
	var keys []fleet.Key
	for _, w := range r.stack.workers {
		for rank := range uint32(r.stack.cfg.Ranks) {
			keys = append(keys, fleet.Key{ID: w.id, Rank: rank})
		}
	}
	return keys
}

// finish sends n short requests, one after the other, and waits until none is left.
func (r *loadRig) finish(t *testing.T, n int) {
	t.Helper()
	ids := map[string]bool{}
	for i := range n {
		id := NewRequestID()
		ids[id] = true
		if err := r.request(t.Context(), id, uint64(100+i), 4); err != nil {
			t.Fatal(err)
		}
	}
	r.settle(t, ids)
}

// checkEngines checks what engines say of themselves: blocks in use where something
// ran, and the queue of every rank, once a second.
func (r *loadRig) checkEngines(t *testing.T) *loadWords {
	t.Helper()
	keys := r.keys()
	wantTold := releases[r.stack.cfg.Version].workersTellPrefill
	w := r.wait(t, func(w *loadWords) error {
		if wantTold && w.byWorkers == 0 {
			return errors.New("no worker has told the end of a prefill")
		}
		if len(w.passes) < len(keys) || len(w.used) == 0 {
			return fmt.Errorf("%d ranks tell of their steps and %d of their blocks, want %d and some", len(w.passes), len(w.used), len(keys))
		}
		return nil
	})
	for key := range w.passes {
		if !slices.Contains(keys, key) {
			t.Errorf("steps of %s, which is no worker", key)
		}
		r.picker.waitSum(t, 0, "warmpath_engine_queued_requests", labelsOf(key)...)
		r.picker.waitSum(t, 0, "warmpath_engine_queued_prefill_tokens", labelsOf(key)...)
	}
	for key := range w.used {
		r.picker.waitSample(t, func(float64) error { return nil }, "warmpath_engine_kv_used_blocks", labelsOf(key)...)
	}
	return w
}

func runLoads(t *testing.T, cfg StackConfig) {
	t.Helper()
	r := startLoads(t, cfg)
	r.hold(t, 8)
	r.finish(t, 12)
	w := r.checkEngines(t)
	if told := w.byWorkers > 0; told != releases[cfg.Version].workersTellPrefill {
		t.Errorf("workers told the end of %d prefills", w.byWorkers)
	}
	if len(w.routers) == 0 {
		t.Error("no router speaks")
	}
	r.picker.checkNothingOdd(t)
}

func TestLoads(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		runLoads(t, StackConfig{Version: version, Ranks: 2, Roles: map[fleet.Role]int{fleet.Aggregated: 2}})
	})
}

func TestLoadsOfPrefillAndDecode(t *testing.T) {
	forVersions(t, chainVersions, func(t *testing.T, version string) {
		runLoads(t, StackConfig{Version: version, Roles: map[fleet.Role]int{fleet.Prefill: 2, fleet.Decode: 2}})
	})
}
