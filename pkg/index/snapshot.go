package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/xxh3"
)

// A snapshot, all numbers little-endian:
//
//	magic, 8 bytes, with the version
//	per worker:    1, id u64, rank u32
//	  per stretch: 2, depth u32, tiers u8, n u16, n chains u64, n engine hashes u64
//	  copies:      4, n u16, n engine hashes u64, n counts u32; any number of times
//	end:           3, workers u32, engine hashes u64
//	XXH3 of all before, u64
//
// A stretch is blocks of one prompt in a row, from number depth on, which the
// worker holds on the same tiers (bit t: tier t). Counts are of copies beyond the
// first, packed as in memory, of blocks that a stretch before has.
const (
	snapshotMagic = "wpindex\x02"

	tagWorker  = 1
	tagStretch = 2
	tagEnd     = 3
	tagCopies  = 4

	stretchHead = 8 // bytes before its chains
	maxStretch  = chunkCells
	maxLevels   = joined - 1 - maxStretch // of a stretch's depth
)

// ErrSnapshot is returned by Load for what is not an undamaged snapshot.
var ErrSnapshot = errors.New("not an undamaged snapshot of a prefix index")

// ErrNotEmpty is returned by Load when the index holds blocks already.
var ErrNotEmpty = errors.New("a snapshot can be loaded only into an index that holds nothing")

// ErrNoRoom is returned by Load where the bound leaves no room for loading at all.
var ErrNoRoom = errors.New("no memory is left to load a snapshot in")

// Snapshot writes all that the index holds, in the form that Load reads.
//
// Writes may go on meanwhile. What is written of one worker is what it held at
// one moment during the call, between two of its events; the moments of two
// workers differ. Nothing is locked while w is written to. Slots and the
// counters of Stats are not part of it.
func (x *Index) Snapshot(w io.Writer) error {
	hash := xxh3.New()
	out := io.MultiWriter(w, hash)
	buf := []byte(snapshotMagic)
	workers, total := uint32(0), uint64(0)
	var c copied
	for _, k := range x.Workers() {
		r := x.rank(k)
		if r == nil {
			continue // left meanwhile
		}
		buf = append(buf, tagWorker)
		buf = binary.LittleEndian.AppendUint64(buf, k.ID)
		buf = binary.LittleEndian.AppendUint32(buf, k.Rank)
		buf = x.appendRank(buf, &c, r)
		if _, err := out.Write(buf); err != nil {
			return fmt.Errorf("write a snapshot: %w", err)
		}
		buf = buf[:0]
		workers++
		total += uint64(len(c.blocks))
	}
	buf = append(buf, tagEnd)
	buf = binary.LittleEndian.AppendUint32(buf, workers)
	buf = binary.LittleEndian.AppendUint64(buf, total)
	if _, err := out.Write(buf); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, hash.Sum64())); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil
}

// kept is one engine hash of a worker.
type kept struct {
	engine uint64
	held   held
}

// copied is the memory of appendRank.
type copied struct {
	blocks []kept
	order  []uint64 // cell, and in the low half the position in blocks
}

// appendRank appends the stretches of a worker to buf. Events of the worker wait.
func (x *Index) appendRank(buf []byte, c *copied, r *rank) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.blocks, c.order = c.blocks[:0], c.order[:0]
	r.blocks.each(func(engine uint64, value uint32) bool {
		h := held(value)
		c.order = append(c.order, uint64(h.cell())<<32|uint64(len(c.blocks)))
		c.blocks = append(c.blocks, kept{engine, h})
		return true
	})
	slices.Sort(c.order)
	for rest := c.order; len(rest) > 0; {
		n, depth := x.stretchOf(c.blocks, rest)
		first := c.blocks[uint32(rest[0])].held
		at := len(buf) + stretchHead
		buf = slices.Grow(buf, stretchHead+16*n)[:at+16*n]
		head := buf[at-stretchHead:]
		head[0] = tagStretch
		binary.LittleEndian.PutUint32(head[1:], uint32(depth))
		head[5] = byte(first.tiers())
		binary.LittleEndian.PutUint16(head[6:], uint16(n))
		// The worker's own lock keeps its cells as they are.
		for i, chain := range x.tree.arena.view(first.cell(), n) {
			binary.LittleEndian.PutUint64(buf[at+8*i:], uint64(chain))
			binary.LittleEndian.PutUint64(buf[at+8*(n+i):], c.blocks[uint32(rest[i])].engine)
		}
		rest = rest[n:]
	}
	return appendCopies(buf, &r.copies)
}

// appendCopies appends how many copies there are of the blocks that have several.
func appendCopies(buf []byte, t *table) []byte {
	var engines []uint64
	var counts []uint32
	t.each(func(engine uint64, count uint32) bool {
		engines, counts = append(engines, engine), append(counts, count)
		return true
	})
	for len(engines) > 0 {
		n := min(len(engines), maxStretch)
		buf = append(buf, tagCopies)
		buf = binary.LittleEndian.AppendUint16(buf, uint16(n))
		for _, e := range engines[:n] {
			buf = binary.LittleEndian.AppendUint64(buf, e)
		}
		for _, c := range counts[:n] {
			buf = binary.LittleEndian.AppendUint32(buf, c)
		}
		engines, counts = engines[n:], counts[n:]
	}
	return buf
}

// stretchOf returns how many of the first blocks in order follow each other in
// one run, on the same tiers, and the depth of the first.
func (x *Index) stretchOf(blocks []kept, order []uint64) (n, depth int) {
	x.lock.RLock()
	defer x.lock.RUnlock()
	first := blocks[uint32(order[0])].held
	r := x.tree.run(x.tree.arena.runOf(first.cell()))
	for n = 1; n < len(order); n++ {
		h := blocks[uint32(order[n])].held
		if h.cell() != first.cell()+cell(n) || h.cell() >= r.end() || h.tiers() != first.tiers() {
			break
		}
	}
	return n, x.tree.depth(first.cell())
}
