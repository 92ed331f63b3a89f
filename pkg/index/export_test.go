package index

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/warmpath/warmpath/pkg/block"
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
		if got := t.sets.pools[s>>classBits&(classes-1)].refs[s&indexMask]; got != n {
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
	for i, c := range *a.dir.Load() {
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
	}
	return nil
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
