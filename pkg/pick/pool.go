package pick

import (
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
)

// pool is a snapshot with what decisions look up per worker.
type pool struct {
	*fleet.Snapshot
	members []member // in the order of Workers
	sites   *sites
}

// member is what decisions look up of one worker, close together: a decision reads
// them all.
type member struct {
	load *load.Worker
	slot index.Slot
	row  int32 // of the load table
	site int32 // in sites
	role fleet.Role

	kvBlocks, stepTokens int // what it has room for, and computes in one step; 0: not known
}

// computing is how many workers compute prompts. never: decode workers do, too.
func (p *pool) computing(never bool) int {
	n := p.Count(fleet.Aggregated)
	if never {
		n += p.Count(fleet.Decode)
	} else {
		n += p.Count(fleet.Prefill)
	}
	if n == 0 { // then whoever there is
		return len(p.Workers)
	}
	return n
}

// room is how many KV blocks a worker has, as it announced or as its metrics say; 0
// is not known.
func (m *member) room(f *load.Figures) int {
	if m.kvBlocks > 0 {
		return m.kvBlocks
	}
	return f.KVBlocks
}

// SetFleet replaces the pool. Guesses about workers that left are forgotten, and
// so is their load when their last request ends. What they hold stays in the
// index: a worker that only blinked still has its cache, and would never tell of
// it again. Whoever follows their events calls Drop when they stay away.
//
// It returns index.ErrFull when some workers got no place in the index: they are
// served by load alone.
func (p *Picker) SetFleet(s *fleet.Snapshot) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	prev := p.pool.Load()
	for i, w := range prev.Workers {
		if _, still := s.Index(w.Key); still {
			continue
		}
		p.forget(prev.members[i].slot)
		if p.index.Held(w.Key) == [kvevent.NumTiers]int{} {
			p.index.Drop(w.Key)
		}
	}
	next := &pool{Snapshot: s, members: make([]member, len(s.Workers)), sites: newSites()}
	var full error
	for i, w := range s.Workers {
		slot, err := p.register(w.Key, s)
		if err != nil {
			full, slot = err, index.MaxWorkers // holds nothing
		}
		says := w.Says.Advertised()
		entry := p.load.Worker(w.Key)
		next.members[i] = member{
			load: entry, slot: slot, row: int32(entry.Row()), site: next.sites.add(w.Site), role: w.Role,
			kvBlocks: int(says.KVBlocks), stepTokens: int(says.MaxBatchedTokens),
		}
	}
	p.pool.Store(next)
	p.load.Retain(s)
	return full
}

// register gives a worker a place in the index. When there is none, everybody
// who is not in the new pool makes room.
func (p *Picker) register(k fleet.Key, pool *fleet.Snapshot) (index.Slot, error) {
	slot, err := p.index.Register(k)
	if err == nil {
		return slot, nil
	}
	for _, other := range p.index.Workers() {
		if _, member := pool.Index(other); !member {
			p.drop(other)
		}
	}
	return p.index.Register(k)
}

// Drop forgets what is known of a worker, unless the pool has it (again).
func (p *Picker) Drop(k fleet.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, member := p.pool.Load().Index(k); !member {
		p.drop(k)
	}
}

func (p *Picker) drop(k fleet.Key) {
	p.Forget(k)
	p.index.Drop(k)
}

// Forget drops the guesses about a worker, as when its cache is gone.
func (p *Picker) Forget(k fleet.Key) {
	if slot, ok := p.index.Lookup(k); ok {
		p.forget(slot)
	}
}

func (p *Picker) forget(s index.Slot) {
	p.guesses.Forget(s)
	if p.texts != nil {
		p.texts.Forget(s)
	}
}

// Fleet returns the pool in use.
func (p *Picker) Fleet() *fleet.Snapshot { return p.pool.Load().Snapshot }
