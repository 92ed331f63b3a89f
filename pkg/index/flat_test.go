package index_test

import (
	"sync"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// flat is a structure that was tried and not kept: one table from chain to a
// bitset of up to 64 workers, looked up in jumps, and one Go map of engine hashes
// per worker. It is exact while no worker has a hole, knows the device tier only,
// and is here for the benchmarks to compare with.
type flat struct {
	mu      sync.RWMutex
	keys    []block.Chain
	sets    []uint64 // 0: empty
	count   int
	workers [64]map[kvevent.EngineHash]block.Chain
}

// flatJump is how many blocks a lookup jumps ahead.
const flatJump = 32

func newFlat() *flat {
	f := &flat{keys: make([]block.Chain, 16), sets: make([]uint64, 16)}
	for i := range f.workers {
		f.workers[i] = map[kvevent.EngineHash]block.Chain{}
	}
	return f
}

func (f *flat) at(c block.Chain) int {
	mask := len(f.keys) - 1
	at := int(uint64(c)*0x9e3779b97f4a7c15>>20) & mask
	for f.sets[at] != 0 && f.keys[at] != c {
		at = (at + 1) & mask
	}
	return at
}

func (f *flat) Apply(ev *kvevent.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	blocks, bit := f.workers[ev.WorkerID], uint64(1)<<ev.WorkerID
	if ev.Kind == kvevent.Removed {
		for _, e := range ev.Gone {
			// A set that becomes empty keeps its key, as a tombstone would.
			if c, ok := blocks[e]; ok {
				f.sets[f.at(c)] &^= bit
				delete(blocks, e)
			}
		}
		return nil
	}
	chain := block.Chain(0)
	for i, b := range ev.Blocks {
		switch {
		case i > 0:
			chain = chain.Next(b.Hash)
		case ev.HasParent:
			chain = blocks[ev.Parent].Next(b.Hash)
		default:
			chain = block.Root(b.Hash)
		}
		if f.count*4 >= len(f.keys)*3 {
			f.grow()
		}
		at := f.at(chain)
		if f.sets[at] == 0 {
			f.keys[at] = chain
			f.count++
		}
		f.sets[at] |= bit
		blocks[b.Engine] = chain
	}
	return nil
}

func (f *flat) grow() {
	keys, sets := f.keys, f.sets
	f.keys, f.sets = make([]block.Chain, 2*len(keys)), make([]uint64, 2*len(sets))
	for i, s := range sets {
		if s != 0 {
			at := f.at(keys[i])
			f.keys[at], f.sets[at] = keys[i], s
		}
	}
}

// Match jumps ahead while the same workers hold all, and walks back where not.
func (f *flat) Match(chains []block.Chain, out *[64]uint32) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	clear(out[:])
	if len(chains) == 0 {
		return
	}
	alive, at := f.sets[f.at(chains[0])], 0
	for alive != 0 && at < len(chains)-1 {
		next := min(at+flatJump, len(chains)-1)
		if alive&^f.sets[f.at(chains[next])] != 0 {
			// Someone leaves in between: find where, block by block.
			for i := at + 1; i <= next && alive != 0; i++ {
				still := alive & f.sets[f.at(chains[i])]
				flatReport(out, alive&^still, i)
				alive = still
			}
		}
		at = next
	}
	flatReport(out, alive, len(chains))
}

func flatReport(out *[64]uint32, word uint64, n int) {
	for s := range 64 {
		if word>>s&1 == 1 {
			out[s] = uint32(n)
		}
	}
}

func (f *flat) Stats() index.Stats {
	n := 0
	for _, m := range f.workers {
		n += len(m)
	}
	return index.Stats{Entries: n}
}

func (f *flat) Drop(k fleet.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.workers[k.ID] {
		f.sets[f.at(c)] &^= 1 << k.ID
	}
	f.workers[k.ID] = map[kvevent.EngineHash]block.Chain{}
}
