package index

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// Check verifies what must hold inside an index between calls.
func (x *Index) Check() error {
	x.lock.RLock()
	defer x.lock.RUnlock()
	t := x.tree
	cells, runs := 0, 0
	refs := map[setID]uint32{}
	seen := map[block.Chain]uint32{}
	reserved := map[cell]uint32{}
	for id := uint32(1); id < t.used; id++ {
		r := t.run(id)
		if r.start == 0 {
			continue
		}
		runs++
		if r.length == 0 || r.room < r.length || r.empty() {
			return fmt.Errorf("run %d: %+v", id, *r)
		}
		if t.find(t.first(r)) != id {
			return fmt.Errorf("run %d is not found by its first chain, but %d", id, t.find(t.first(r)))
		}
		for i := range cell(r.room) {
			c := r.start + i
			if o := reserved[c]; o != 0 {
				return fmt.Errorf("cell %d in runs %d and %d", c, id, o)
			}
			reserved[c] = id
			want := uint32(0)
			if i < cell(r.length) {
				want = id
				cells++
				if o := seen[t.arena.chain(c)]; o != 0 {
					return fmt.Errorf("chain of run %d in run %d too", id, o)
				}
				seen[t.arena.chain(c)] = id
			}
			if t.arena.runOf(c) != want {
				return fmt.Errorf("cell %d of run %d belongs to %d", c, id, t.arena.runOf(c))
			}
		}
		for _, s := range r.sets {
			if s&manyBit != 0 {
				refs[s]++
			}
		}
		if r.isJoined() {
			before := t.arena.runOf(r.start - 1)
			if l := t.run(before); before == 0 || l.end() != r.start || l.room != l.length || l.at()+uint32(l.length) != r.at() {
				return fmt.Errorf("run %d is joined to run %d: %+v %+v", id, before, *r, *l)
			}
		}
	}
	if t.heads.count != runs {
		return fmt.Errorf("%d heads of %d runs", t.heads.count, runs)
	}
	if t.sets.count != len(refs) {
		return fmt.Errorf("%d sets, %d in use", t.sets.count, len(refs))
	}
	for s, n := range refs {
		if got := t.sets.mark(s).refs; got != n {
			return fmt.Errorf("set %x has %d references, counts %d", s, n, got)
		}
	}
	return x.checkArena(reserved)
}

// checkArena verifies that exactly the cells that runs have are given out.
func (x *Index) checkArena(reserved map[cell]uint32) error {
	a := &x.tree.arena
	if a.chunks == 0 {
		return nil
	}
	total := 0
	for i, c := range *a.dir.Load() {
		if c == nil {
			if !slices.Contains(a.vacant, uint32(i)) {
				return fmt.Errorf("chunk %d is gone and not listed", i)
			}
			continue
		}
		free := uint32(0)
		for g := range uint32(chunkGrains) {
			busy := c.busy[g/wordBits]>>(g%wordBits)&1 == 1
			if busy != (c.used[g] > 0) {
				return fmt.Errorf("chunk %d granule %d: busy %v, %d used", i, g, busy, c.used[g])
			}
			if !busy {
				free++
			}
			n := uint8(0)
			for k := range uint32(granule) {
				if reserved[cell(uint32(i)<<chunkBits+g*granule+k)] != 0 {
					n++
				}
			}
			if i == 0 && g == 0 {
				n = granule
			}
			if n != c.used[g] {
				return fmt.Errorf("chunk %d granule %d: %d used, runs have %d", i, g, c.used[g], n)
			}
		}
		if free != c.free {
			return fmt.Errorf("chunk %d: %d free, counts %d", i, free, c.free)
		}
		if listed := slices.Contains(a.roomy, uint32(i)); listed != c.roomy {
			return fmt.Errorf("chunk %d: listed %v, says %v", i, listed, c.roomy)
		}
		total += int(free)
	}
	if total != a.free {
		return fmt.Errorf("%d granules free, counts %d", total, a.free)
	}
	return nil
}

// NewTiny returns an index of less than MinBytes: bytes for what it holds, beside
// the registry of workers. It returns the bound of Memory().Bytes too.
func NewTiny(bytes int64) (*Index, int64) {
	bound := bytes + MaxWorkers*slotBytes
	return newIndex(bound), bound
}

// Squeeze bounds an index to what it takes now and some spare bytes.
func (x *Index) Squeeze(spare int64) { x.room.hard = x.room.used.Load() + spare }

// SqueezeBulk bounds an index so that there is room for steps, and none in bulk.
func (x *Index) SqueezeBulk() {
	used := x.room.used.Load()
	for x.room.hard = used; x.room.soft() < used; x.room.hard++ {
	}
}

// Spare is what an index may still take.
func (x *Index) Spare() int64 { return x.room.hard - x.room.used.Load() }

// Recount counts anew what Memory().Bytes has counted step by step, and checks
// the counts in between. No call may be under way.
func (x *Index) Recount() (int64, error) {
	bytes := x.tree.bytes()
	for k, r := range x.ranks {
		for _, t := range []*table{&r.blocks, &r.again, &r.copies} {
			size, count := int64(len(t.dir))*8, 0
			for i, s := range t.dir {
				if i == 0 || t.dir[i-1] != s {
					size += segmentBytes + entriesBytes(len(s.entries))
					count += s.count
				}
			}
			if size != t.size || count != t.count {
				return 0, fmt.Errorf("worker %v: a table of %d bytes and %d keys counts %d and %d", k, size, count, t.size, t.count)
			}
			bytes += size
		}
	}
	need := x.tree.runsNeed() + x.tree.heads.need() + x.tree.sets.need
	if got := x.room.need.Load(); got != need {
		return 0, fmt.Errorf("a step needs %d bytes, counts %d", need, got)
	}
	return bytes + int64(len(x.slots))*slotBytes, nil
}

// Seal gives a snapshot the checksum that its content asks for.
func Seal(data []byte) []byte {
	if len(data) < 8 {
		return data
	}
	sealed := append([]byte(nil), data...)
	at := len(sealed) - 8
	binary.LittleEndian.PutUint64(sealed[at:], xxh3.Hash(sealed[:at]))
	return sealed
}

// Evict evicts about n entries of a worker, and reports whether it had any.
func (x *Index) Evict(k fleet.Key, n int) bool {
	r := x.rank(k)
	r.mu.Lock()
	defer r.mu.Unlock()
	return x.evict(r, n)
}

// Copies returns the copies that a worker has of blocks beyond the first, on each
// tier.
func (x *Index) Copies(k fleet.Key) map[kvevent.EngineHash][kvevent.NumTiers]int {
	all := map[kvevent.EngineHash][kvevent.NumTiers]int{}
	r := x.rank(k)
	if r == nil {
		return all
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copies.each(func(engine uint64, value uint32) bool {
		var n [kvevent.NumTiers]int
		for t := range n {
			n[t] = int(copies(value).on(kvevent.Tier(t)))
		}
		all[kvevent.EngineHash(engine)] = n
		return true
	})
	return all
}

// NewBoundedSpeculation is NewSpeculation with a bound of its own.
func NewBoundedSpeculation(ttl time.Duration, maxBytes int64) *Speculation {
	return newSpeculation(ttl, maxBytes)
}
