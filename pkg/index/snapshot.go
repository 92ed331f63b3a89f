package index

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// A snapshot, all numbers little-endian:
//
//	magic, 8 bytes, with the version
//	per worker:    1, id u64, rank u32
//	  per stretch: 2, depth u32, tiers u8, n u16, n chains u64, n engine hashes u64
//	end:           3, workers u32, engine hashes u64
//	XXH3 of all before, u64
//
// A stretch is blocks of one prompt in a row, from number depth on, which the
// worker holds on the same tiers (bit t: tier t).
const (
	snapshotMagic = "wpindex\x01"

	tagWorker  = 1
	tagStretch = 2
	tagEnd     = 3

	stretchHead = 8 // bytes before its chains
	maxStretch  = chunkCells
	maxLevels   = joined - 1 - maxStretch // of a stretch's depth
)

// ErrSnapshot is returned by Load for what is not an undamaged snapshot.
var ErrSnapshot = errors.New("not an undamaged snapshot of a prefix index")

// ErrNotEmpty is returned by Load when the index holds blocks already.
var ErrNotEmpty = errors.New("a snapshot can be loaded only into an index that holds nothing")

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

// Load fills an index that holds nothing with a snapshot. Workers that are
// registered keep their slots, others get one. It reads r to its end.
//
// It fails with ErrSnapshot for input that is damaged, cut short or of another
// version, with ErrNotEmpty, with ErrFull, or with what r fails with; then the
// index is as before.
func (x *Index) Load(r io.Reader) error {
	l := loader{
		hash: xxh3.New(), tree: newTree(maxChunks), ranks: map[fleet.Key]*rank{},
	}
	l.in = bufio.NewReaderSize(r, 1<<16)
	if err := l.read(); err != nil {
		return err
	}
	if err := x.adopt(&l); err != nil {
		return err
	}
	if x.counters.entries.Load() > x.max {
		x.relieve()
	}
	return nil
}

// loader builds a tree from a snapshot, beside the index.
type loader struct {
	in    *bufio.Reader
	hash  *xxh3.Hasher
	buf   []byte
	tree  *tree
	at    table // chain to cell
	ranks map[fleet.Key]*rank
	total uint64

	chains []block.Chain
	cells  []cell
	again  []bool
}

// next returns the next n bytes, valid until the next call.
func (l *loader) next(n int) ([]byte, error) {
	l.buf = slices.Grow(l.buf[:0], n)[:n]
	if _, err := io.ReadFull(l.in, l.buf); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: it ends early", ErrSnapshot)
		}
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	_, _ = l.hash.Write(l.buf) // never fails
	return l.buf, nil
}

func (l *loader) read() error {
	magic, err := l.next(len(snapshotMagic))
	if err != nil {
		return err
	}
	if string(magic) != snapshotMagic {
		return fmt.Errorf("%w: it begins with %q, not %q", ErrSnapshot, magic, snapshotMagic)
	}
	var current *rank
	for {
		tag, err := l.next(1)
		if err != nil {
			return err
		}
		switch {
		case tag[0] == tagWorker:
			current, err = l.worker()
		case tag[0] == tagStretch && current != nil:
			err = l.stretch(current)
		case tag[0] == tagEnd:
			return l.end()
		default:
			err = fmt.Errorf("%w: tag %d", ErrSnapshot, tag[0])
		}
		if err != nil {
			return err
		}
	}
}

func (l *loader) worker() (*rank, error) {
	b, err := l.next(12)
	if err != nil {
		return nil, err
	}
	k := fleet.Key{ID: binary.LittleEndian.Uint64(b), Rank: binary.LittleEndian.Uint32(b[8:])}
	if l.ranks[k] != nil || len(l.ranks) == MaxWorkers {
		return nil, fmt.Errorf("%w: a worker twice, or too many", ErrSnapshot)
	}
	r := &rank{}
	l.ranks[k] = r
	return r, nil
}

func (l *loader) end() error {
	b, err := l.next(12)
	if err != nil {
		return err
	}
	if int(binary.LittleEndian.Uint32(b)) != len(l.ranks) || binary.LittleEndian.Uint64(b[4:]) != l.total {
		return fmt.Errorf("%w: its counts are wrong", ErrSnapshot)
	}
	want := l.hash.Sum64()
	b, err = l.next(8)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(b) != want {
		return fmt.Errorf("%w: its checksum is wrong", ErrSnapshot)
	}
	if _, err := l.in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more follows its end", ErrSnapshot)
	}
	return nil
}

// stretch reads blocks in a row of a worker.
func (l *loader) stretch(r *rank) error {
	b, err := l.next(7)
	if err != nil {
		return err
	}
	depth, tiers, n := binary.LittleEndian.Uint32(b), held(b[4]), int(binary.LittleEndian.Uint16(b[5:]))
	if depth > maxLevels || tiers == 0 || tiers >= 1<<kvevent.NumTiers || n == 0 || n > maxStretch {
		return fmt.Errorf("%w: %d blocks at depth %d on tiers %b", ErrSnapshot, n, depth, tiers)
	}
	if b, err = l.next(n * 16); err != nil {
		return err
	}
	l.chains, l.cells, l.again = slices.Grow(l.chains[:0], n)[:n], slices.Grow(l.cells[:0], n)[:n], slices.Grow(l.again[:0], n)[:n]
	for i := range n {
		l.chains[i] = block.Chain(binary.LittleEndian.Uint64(b[8*i:]))
	}
	if !r.opened {
		r.open(l.tree)
	}
	for t := range kvevent.Tier(kvevent.NumTiers) {
		if tiers>>t&1 == 1 && !l.place(r, t, int(depth)) {
			return fmt.Errorf("%w: more blocks than an index has room for", ErrSnapshot)
		}
	}
	for i := range n {
		engine := binary.LittleEndian.Uint64(b[8*(n+i):])
		if _, known := r.blocks.insert(engine, uint32(tiers<<cellBits|held(l.cells[i]))); known {
			return fmt.Errorf("%w: an engine hash twice", ErrSnapshot)
		}
	}
	l.total += uint64(n)
	return nil
}

// place puts the blocks of a stretch where they were seen before, or in a row.
func (l *loader) place(r *rank, t kvevent.Tier, depth int) bool {
	fresh := 0
	for i := 0; i < len(l.chains); {
		var n int
		if c := cell(l.at.get(uint64(l.chains[i]))); c != 0 {
			n = l.tree.shareAt(c, r.column, t, l.chains[i:], l.cells[i:], l.again[i:])
		} else {
			n = l.create(r, t, i, depth+i)
		}
		if n == 0 {
			return false
		}
		for k := i; k < i+n; k++ {
			if l.again[k] {
				r.repeat(l.cells[k], t)
			} else {
				fresh++
			}
		}
		i += n
	}
	r.count[t] += fresh
	r.total.Add(int64(fresh))
	l.tree.entries[t] += fresh
	return true
}

// unplaced stands in loader.at for a chain that is about to get a cell.
const unplaced = 1<<32 - 1

// create stores the blocks from number i on up to one that was seen before.
func (l *loader) create(r *rank, t kvevent.Tier, i, depth int) int {
	j := i
	for ; j < len(l.chains); j++ {
		if _, known := l.at.insert(uint64(l.chains[j]), unplaced); known {
			break // on its own, or twice in this row
		}
	}
	done := i
	for done < j {
		n := l.tree.create(0, depth+done-i, r.column, t, l.chains[done:j], l.cells[done:j])
		if n == 0 {
			return 0
		}
		done += n
	}
	clear(l.again[i:j])
	for k := i; k < j; k++ {
		p, _ := l.at.find(uint64(l.chains[k]))
		p.set(uint32(l.cells[k]))
	}
	return j - i
}

// adopt makes what was loaded the index's own.
func (x *Index) adopt(l *loader) error {
	x.reg.Lock()
	defer x.reg.Unlock()
	for _, r := range x.ranks {
		r.mu.Lock()
		defer r.mu.Unlock()
	}
	if x.counters.entries.Load() > 0 {
		return ErrNotEmpty
	}
	strangers := 0
	for k := range l.ranks {
		if x.ranks[k] == nil {
			strangers++
		}
	}
	if len(x.ranks)+strangers > MaxWorkers {
		return ErrFull
	}
	for _, r := range x.ranks {
		r.opened = false // its column, which nothing has, stays behind
	}
	for k, from := range l.ranks {
		r, err := x.registerLocked(k)
		if err != nil {
			return err
		}
		r.blocks, r.again, r.count = from.blocks, from.again, from.count
		r.column, r.opened = from.column, from.opened
		r.total.Store(from.total.Load())
		x.counters.entries.Add(from.total.Load())
		if r.opened {
			l.tree.columns.slots[r.column] = r.slot
			l.tree.columns.show(r.column, !r.hidden.Load())
		}
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	l.tree.slots = len(x.slots)
	x.tree = l.tree
	return nil
}
