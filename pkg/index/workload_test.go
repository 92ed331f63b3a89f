package index_test

import (
	"math/rand/v2"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// store is what the benchmarks ask of an index.
type store interface {
	Apply(*kvevent.Event) error
	Drop(fleet.Key)
	Stats() index.Stats
}

// workload is the one of the published figures: 10,000 prompts of 128 blocks
// that begin with one of 16 system prompts of 32 blocks, and 64 of 1,000; 16
// blocks an event; every prompt stored on as many workers as there are holders.
type workload struct {
	events      []kvevent.Event
	short, long [][]block.Chain // prompts of 128 and of 1,000 blocks
	stored      int             // blocks of all events
	workers     int
	perWorker   [][]int // events of each worker
}

const eventBlocks = 16

// newWorkload builds one. With branches, prompts of 128 blocks leave one another
// at about that many points each.
func newWorkload(workers, holders int, branchy bool) *workload {
	r := rand.New(rand.NewPCG(uint64(workers), uint64(holders)))
	w := &workload{workers: workers, perWorker: make([][]int, workers)}
	n := 10_000 / holders
	longs := max(64/holders, 8)
	system := make([][]block.Hash, 16)
	for i := range system {
		system[i] = fresh(r, 32)
	}
	var earlier [][]block.Hash
	for i := range n {
		var contents []block.Hash
		if branchy && len(earlier) > 0 {
			// Leave earlier prompts, one after another, wherever they are left.
			contents = branch(r, earlier)
		} else {
			contents = append(contents, system[i%16]...)
			contents = append(contents, fresh(r, 96)...)
		}
		if branchy && (i < 64 || i%4 == 0) {
			earlier = append(earlier, contents)
		}
		w.short = append(w.short, block.AppendChains(nil, contents))
		w.store(r, contents, holders)
	}
	for range longs {
		contents := fresh(r, 1000)
		w.long = append(w.long, block.AppendChains(nil, contents))
		w.store(r, contents, holders)
	}
	return w
}

// branch makes a prompt that shares a prefix with an earlier one.
func branch(r *rand.Rand, earlier [][]block.Hash) []block.Hash {
	from := earlier[r.IntN(len(earlier))]
	at := 4 + r.IntN(len(from)-8)
	contents := append([]block.Hash(nil), from[:at]...)
	return append(contents, fresh(r, 128-at)...)
}

func fresh(r *rand.Rand, n int) []block.Hash {
	contents := make([]block.Hash, n)
	for i := range contents {
		contents[i] = block.Hash(r.Uint64())
	}
	return contents
}

// store adds the events by which some workers store a prompt. Their engine
// hashes are of each worker's own, the same for the same prefix.
func (w *workload) store(r *rand.Rand, contents []block.Hash, holders int) {
	first := r.IntN(w.workers)
	chains := block.AppendChains(nil, contents)
	for k := range holders {
		id := (first + k) % w.workers
		salt := uint64(id)*0x9e3779b97f4a7c15 + 1
		for at := 0; at < len(contents); at += eventBlocks {
			ev := kvevent.Event{WorkerID: uint64(id), Kind: kvevent.Stored}
			if at > 0 {
				ev.HasParent, ev.Parent = true, kvevent.EngineHash(uint64(chains[at-1])^salt)
			}
			for i := at; i < min(at+eventBlocks, len(contents)); i++ {
				ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(uint64(chains[i]) ^ salt), Hash: contents[i]})
			}
			w.stored += len(ev.Blocks)
			w.perWorker[id] = append(w.perWorker[id], len(w.events))
			w.events = append(w.events, ev)
		}
	}
}

// fill applies all events.
func (w *workload) fill(x store) {
	for i := range w.events {
		if err := x.Apply(&w.events[i]); err != nil {
			panic(err)
		}
	}
}
