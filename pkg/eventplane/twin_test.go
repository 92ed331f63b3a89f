package eventplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// fact is one event as the twin reads it: plain values, no type of the code
// under test.
type fact struct {
	publisher uint64
	worker    fleet.Key
	id        uint64
	tier      string
	kind      string
	parent    *uint64
	blocks    []factBlock
	gone      []uint64
	whole     bool // a cleared of a release that means all ranks
	wide      bool // in component scope, where cleared does
}

type factBlock struct {
	Engine uint64 `json:"block_hash"`
	Tokens uint64 `json:"tokens_hash"`
}

// parseFacts reads the decoded payload of a kv-events message. Go's JSON keeps
// all 64 bits of integers that go to uint64.
func parseFacts(t testing.TB, publisher uint64, payload json.RawMessage) []fact {
	t.Helper()
	facts := parsePayload(t, payload)
	for i := range facts {
		facts[i].publisher = publisher
	}
	return facts
}

func parsePayload(t testing.TB, payload json.RawMessage) []fact {
	t.Helper()
	if payload[0] == '{' { // releases 1.2 and 1.3: one event, and cleared means all ranks
		f := parseFact(t, payload)
		f.whole, f.wide = f.kind == "cleared", true
		return []fact{f}
	}
	var list []json.RawMessage
	mustParse(t, payload, &list)
	var facts []fact
	for _, raw := range list {
		facts = append(facts, parseFact(t, raw))
	}
	return facts
}

func parseFact(t testing.TB, raw json.RawMessage) fact {
	t.Helper()
	var e struct {
		Worker uint64 `json:"worker_id"`
		Tier   string `json:"storage_tier"`
		Event  struct {
			ID   uint64 `json:"event_id"`
			Rank uint32 `json:"dp_rank"`
			Data json.RawMessage
		}
	}
	mustParse(t, raw, &e)
	f := fact{worker: fleet.Key{ID: e.Worker, Rank: e.Event.Rank}, id: e.Event.ID, tier: e.Tier}
	if string(e.Event.Data) == `"cleared"` {
		f.kind = "cleared"
		return f
	}
	var data struct {
		Stored *struct {
			Parent *uint64 `json:"parent_hash"`
			Blocks []factBlock
		}
		Removed *struct {
			Gone []uint64 `json:"block_hashes"`
		}
	}
	mustParse(t, e.Event.Data, &data)
	switch {
	case data.Stored != nil:
		f.kind, f.parent, f.blocks = "stored", data.Stored.Parent, data.Stored.Blocks
	case data.Removed != nil:
		f.kind, f.gone = "removed", data.Removed.Gone
	default:
		t.Fatalf("an event of no known kind: %s", raw)
	}
	return f
}

func mustParse(t testing.TB, raw []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%v in %.200s", err, raw)
	}
}

// event is the same as the codec's value, to be encoded.
func (f *fact) event() kvevent.Event {
	ev := kvevent.Event{WorkerID: f.worker.ID, Rank: f.worker.Rank, ID: f.id, Tier: kvevent.Tier(slices.Index(tierNames, f.tier))}
	switch f.kind {
	case "stored":
		ev.Kind = kvevent.Stored
		if f.parent != nil {
			ev.Parent, ev.HasParent = kvevent.EngineHash(*f.parent), true
		}
		for _, b := range f.blocks {
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(b.Engine), Hash: block.Hash(b.Tokens)})
		}
	case "removed":
		ev.Kind = kvevent.Removed
		for _, g := range f.gone {
			ev.Gone = append(ev.Gone, kvevent.EngineHash(g))
		}
	case "cleared":
		ev.Kind = kvevent.Cleared
	}
	return ev
}

var tierNames = []string{"device", "host_pinned", "disk", "external"}

// twin is the slow, obvious event plane and index: per worker, the content of
// every block from the prompt's start. It never hashes a prefix.
type twin struct {
	workers map[fleet.Key]*twinWorker
	stats   index.Stats
	now     time.Time
}

type twinWorker struct {
	stats WorkerStats

	heard     bool      // its own publisher spoke
	publisher uint64    // its own; 0 where that is the worker's id
	former    uint64    // the publisher before
	since     time.Time // when the own one followed; zero for the first
	guest     uint64    // another rank's publisher that spoke for it

	indexed bool                  // an event was applied
	held    map[uint64]*twinBlock // by engine hash
}

type twinBlock struct {
	path  []uint64
	tiers map[string]bool
}

func newTwin() *twin {
	return &twin{workers: map[fleet.Key]*twinWorker{}, now: time.Unix(1, 0)}
}

func (w *twin) worker(k fleet.Key) *twinWorker {
	if w.workers[k] == nil {
		w.workers[k] = &twinWorker{held: map[uint64]*twinBlock{}}
	}
	return w.workers[k]
}

func (w *twin) apply(facts ...fact) {
	for _, f := range facts {
		worker := w.worker(f.worker)
		if !w.hear(worker, f) {
			continue
		}
		if !slices.Contains(tierNames, f.tier) {
			worker.stats.Ignored++
			continue
		}
		worker.stats.Events++
		worker.indexed = true
		w.change(worker, f)
	}
}

// hear decides by who speaks, and says whether the event is to be taken.
func (w *twin) hear(worker *twinWorker, f fact) bool {
	publisher := f.publisher
	if publisher == f.worker.ID {
		publisher = 0
	}
	if worker.heard && worker.publisher == publisher {
		return w.count(worker, f)
	}
	for k, other := range w.workers {
		if publisher != 0 && k.ID == f.worker.ID && other.heard && other.publisher == publisher {
			worker.stats.Strays++
			worker.guest = publisher
			if f.id > other.stats.LastID { // ids are the publisher's
				other.jump(f.id, false)
			}
			return true
		}
	}
	if !worker.heard {
		worker.heard, worker.publisher, worker.stats.LastID = true, publisher, f.id
		return true
	}
	if worker.former == publisher && !worker.since.IsZero() && w.now.Before(worker.since.Add(time.Minute)) {
		worker.stats.Stale++
		return false
	}
	w.restart(worker, f)
	worker.former, worker.publisher, worker.since = worker.publisher, publisher, w.now
	return true
}

// restart forgets all that the worker's publisher said, also for other ranks.
func (w *twin) restart(worker *twinWorker, f fact) {
	worker.stats.Restarts++
	worker.stats.LastID = f.id
	if f.id > 1 {
		worker.stats.Gaps++
		worker.stats.Missed += f.id - 1
	}
	clear(worker.held)
	for k, other := range w.workers {
		if k.ID == f.worker.ID && k != f.worker && worker.publisher != 0 && other.guest == worker.publisher {
			other.guest = 0
			clear(other.held)
		}
	}
	if f.id > 1 && f.wide {
		w.loseOthers(f.worker)
	}
}

// count decides by the event id, and says whether the event is new.
func (w *twin) count(worker *twinWorker, f fact) bool {
	switch last := worker.stats.LastID; {
	case f.id > last:
		if f.wide && f.id != last+1 {
			w.loseOthers(f.worker)
		}
		worker.jump(f.id, f.kind == "cleared")
	case f.id == last && f.id != 1 || worker.publisher != 0: // from 1.3 on, a new process has a new publisher
		worker.stats.Duplicates++
		return false
	default:
		w.restart(worker, f)
	}
	return true
}

// loseOthers forgets what the other ranks held: they may have been cleared.
func (w *twin) loseOthers(k fleet.Key) {
	for other, o := range w.workers {
		if other.ID == k.ID && other != k && len(o.held) > 0 {
			o.stats.GivenUp++
			clear(o.held)
		}
	}
}

// jump moves ahead, be it by one or more. What was lost does not matter when the
// worker holds nothing any more.
func (w *twinWorker) jump(id uint64, cleared bool) {
	s := &w.stats
	if missed := id - s.LastID - 1; missed > 0 {
		s.Gaps++
		s.Missed += missed
		if len(w.held) > 0 && !cleared { // nobody can tell what it holds now
			s.GivenUp++
			clear(w.held)
		}
	}
	s.LastID = id
}

func (w *twin) change(worker *twinWorker, f fact) {
	switch f.kind {
	case "stored":
		w.store(worker, f)
	case "removed":
		for _, e := range f.gone {
			b := worker.held[e]
			if b == nil || !b.tiers[f.tier] {
				w.stats.UnknownRemovals++
				continue
			}
			w.stats.Removed++
			delete(b.tiers, f.tier)
			if len(b.tiers) == 0 {
				delete(worker.held, e)
			}
		}
	case "cleared":
		w.stats.Cleared++
		for k, other := range w.workers {
			if k == f.worker || f.whole && k.ID == f.worker.ID {
				clear(other.held)
			}
		}
	}
}

func (w *twin) store(worker *twinWorker, f fact) {
	var path []uint64
	if f.parent != nil && len(f.blocks) > 0 {
		parent := worker.held[*f.parent]
		if parent == nil {
			w.stats.UnknownParents++
			return
		}
		path = parent.path
	}
	for _, b := range f.blocks {
		path = append(slices.Clone(path), b.Tokens)
		w.stats.Stored++
		held := worker.held[b.Engine]
		if held != nil && !slices.Equal(held.path, path) {
			w.stats.Replaced++
			held = nil
		}
		if held == nil {
			held = &twinBlock{path: path, tiers: map[string]bool{}}
			worker.held[b.Engine] = held
		}
		if held.tiers[f.tier] {
			w.stats.Duplicates++
		}
		held.tiers[f.tier] = true
	}
}

// paths returns the distinct prefixes that a worker holds on a tier.
func (w *twinWorker) paths(tier string) map[string][]uint64 {
	paths := map[string][]uint64{}
	for _, b := range w.held {
		if b.tiers[tier] {
			paths[fmt.Sprint(b.path)] = b.path
		}
	}
	return paths
}

// depth counts along a prompt, tier after tier.
func (w *twinWorker) depth(prompt []uint64) index.Depth {
	var n [kvevent.NumTiers]int
	at := 0
	for i, tier := range tierNames {
		paths := w.paths(tier)
		for at < len(prompt) && paths[fmt.Sprint(prompt[:at+1])] != nil {
			at++
			n[i]++
		}
	}
	return index.Depth{Device: n[0], Host: n[1], Disk: n[2], External: n[3]}
}

// chainOf is the chain that stands for a whole prefix.
func chainOf(path []uint64) block.Chain {
	chains := chainsOf(path)
	return chains[len(chains)-1]
}

func chainsOf(path []uint64) []block.Chain {
	var hashes []block.Hash
	for _, h := range path {
		hashes = append(hashes, block.Hash(h))
	}
	return block.AppendChains(nil, hashes)
}

// testingT is what tests and property tests have in common.
type testingT interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// check compares all that the plane and its index say with the twin.
func (w *twin) check(t testingT, r *rig) {
	t.Helper()
	want := w.stats
	stats := map[fleet.Key]WorkerStats{}
	var keys []fleet.Key
	for k, worker := range w.workers {
		stats[k] = worker.stats
		if worker.indexed {
			keys = append(keys, k)
			want.Workers++
		}
		count := r.index.Held(k)
		for i, tier := range tierNames {
			var chains []block.Chain
			for _, path := range worker.paths(tier) {
				chains = append(chains, chainOf(path))
			}
			got := r.index.Chains(k, kvevent.Tier(i))
			slices.Sort(chains)
			slices.Sort(got)
			if !slices.Equal(got, chains) {
				t.Errorf("worker %v holds %d chains on %s, want %d: %v, want %v", k, len(got), tier, len(chains), got, chains)
			}
			if count[i] != len(chains) {
				t.Errorf("worker %v: count of %s is %d, want %d", k, tier, count[i], len(chains))
			}
			want.Entries += len(chains)
		}
	}
	got := r.index.Workers()
	slices.SortFunc(got, fleet.Key.Compare)
	slices.SortFunc(keys, fleet.Key.Compare)
	if !slices.Equal(got, keys) {
		t.Errorf("the index has workers %v, want %v", got, keys)
	}
	if got := r.index.Stats(); got != want {
		t.Errorf("index counters (-want +got):\n%s", cmp.Diff(want, got))
	}
	workers := r.plane.Workers()
	for k, s := range workers {
		workers[k] = counted(s)
	}
	if !maps.Equal(stats, workers) { // Diff is slow
		t.Errorf("counters of workers (-want +got):\n%s", cmp.Diff(stats, workers))
	}
}

// checkPrompt compares the depth that a lookup finds for every worker.
func (w *twin) checkPrompt(t testingT, r *rig, prompt []uint64) {
	t.Helper()
	var m index.Match
	r.index.Match(chainsOf(prompt), &m)
	for k, worker := range w.workers {
		slot, ok := r.index.Lookup(k)
		if !worker.indexed && !ok {
			continue
		}
		if !ok {
			t.Fatalf("worker %v is not in the index", k)
		}
		if got, want := m.Depth(slot), worker.depth(prompt); got != want {
			t.Errorf("worker %v holds %+v of a prompt of %d blocks, want %+v", k, got, len(prompt), want)
		}
	}
}

// readLines splits a file into lines.
func readLines(data []byte) [][]byte { return bytes.Split(bytes.TrimSpace(data), []byte("\n")) }
