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

// Load fills an index that holds nothing with a snapshot. Workers that are
// registered keep their slots, others get one. It reads r to its end.
//
// It fails with ErrSnapshot for input that is damaged, cut short or of another
// version, with ErrNotEmpty, also where events come meanwhile, with ErrFull, with
// ErrNoRoom where not even an empty index fits, or with what r fails with; then
// the index is as before.
//
// Loading keeps the bound of the index, and takes some 16 bytes per block beside
// what it loads. Of a snapshot that does not fit the deepest blocks are left out,
// as when the index is full, and Memory tells how many.
func (x *Index) Load(r io.Reader) error {
	if x.counters.entries.Load() > 0 {
		return ErrNotEmpty
	}
	x.reset() // what it has kept is needed
	if !x.room.affords(baseBytes + x.room.need.Load()) {
		return ErrNoRoom
	}
	l := loader{hash: xxh3.New(), index: newWithin(x.room)}
	defer l.at.release(x.room)
	l.in = bufio.NewReaderSize(r, 1<<16)
	err := l.read()
	if err == nil {
		err = x.adopt(l.index)
	}
	if err != nil {
		l.index.discard()
		return err
	}
	return nil
}

// discard gives all memory of an index back that nobody will use.
func (x *Index) discard() {
	for _, r := range x.ranks {
		x.empty(r)
	}
	x.tree.end()
}

// loader fills an index from a snapshot.
type loader struct {
	in    *bufio.Reader
	hash  *xxh3.Hasher
	buf   []byte
	index *Index // within the budget of the one that is loaded
	at    table  // chain to cell, or to where it once was
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
		case tag[0] == tagCopies && current != nil:
			err = l.copies(current)
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
	if l.index.ranks[k] != nil || len(l.index.ranks) == MaxWorkers {
		return nil, fmt.Errorf("%w: a worker twice, or too many", ErrSnapshot)
	}
	r := &rank{}
	l.index.ranks[k] = r
	return r, nil
}

func (l *loader) end() error {
	b, err := l.next(12)
	if err != nil {
		return err
	}
	if int(binary.LittleEndian.Uint32(b)) != len(l.index.ranks) || binary.LittleEndian.Uint64(b[4:]) != l.total {
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
	engines := b[8*n:]
	l.total += uint64(n)
	if n, err = l.expect(r, engines, n); err != nil {
		return err
	}
	var placed [kvevent.NumTiers]int
	for t := range kvevent.Tier(kvevent.NumTiers) {
		if tiers>>t&1 == 0 {
			continue
		}
		if placed[t] = l.place(r, t, int(depth), n); placed[t] < 0 {
			return nil // the worker was cleared
		}
	}
	l.settle(r, engines, n, placed)
	return nil
}

// copies reads how many copies a worker has of some blocks. Blocks that found no
// room have none; where there is none for a count, the first removal takes the
// block.
func (l *loader) copies(r *rank) error {
	b, err := l.next(2)
	if err != nil {
		return err
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b, err = l.next(n * 12); err != nil {
		return err
	}
	x := l.index
	cut := x.counters.noRoom.Load()+x.counters.evicted.Load() > 0
	for i := range n {
		engine, c := binary.LittleEndian.Uint64(b[8*i:]), copies(binary.LittleEndian.Uint32(b[8*n+4*i:]))
		h := held(r.blocks.get(engine))
		over := c == 0
		for t := range kvevent.Tier(kvevent.NumTiers) {
			over = over || c.on(t) > 0 && !h.on(t)
		}
		if over && !cut {
			return fmt.Errorf("%w: copies of a block that is not there", ErrSnapshot)
		}
		if over {
			continue
		}
		_, known, ok := r.copies.insert(purse{x.room, false}, engine, uint32(c))
		if known {
			return fmt.Errorf("%w: copies of a block twice", ErrSnapshot)
		}
		if !ok {
			x.counters.noRoom.Add(1)
		}
	}
	return nil
}

// expect makes the engine hashes of a stretch known to a worker, and returns how
// many there was memory for.
func (l *loader) expect(r *rank, engines []byte, n int) (int, error) {
	x := l.index
	for i := range n {
		engine := binary.LittleEndian.Uint64(engines[8*i:])
		_, known, ok := r.blocks.insert(purse{x.room, false}, engine, uint32(pending))
		for !ok && x.makeRoom(x.reliefs.Load()) {
			if i > 0 && r.blocks.count == 0 { // the worker was cleared
				x.counters.noRoom.Add(uint64(n))
				return 0, nil
			}
			_, known, ok = r.blocks.insert(purse{x.room, false}, engine, uint32(pending))
		}
		if known {
			return 0, fmt.Errorf("%w: an engine hash twice", ErrSnapshot)
		}
		if !ok {
			x.counters.noRoom.Add(uint64(n - i))
			return i, nil
		}
	}
	return n, nil
}

// settle notes where the blocks of a stretch are that have found a place on some
// tier, and forgets the others.
func (l *loader) settle(r *rank, engines []byte, n int, placed [kvevent.NumTiers]int) {
	for i := range n {
		h := held(l.cells[i])
		for t, m := range placed {
			if i < m {
				h = h.add(kvevent.Tier(t))
			}
		}
		p, _ := r.blocks.find(binary.LittleEndian.Uint64(engines[8*i:]))
		if h.tiers() == 0 {
			r.blocks.remove(p)
			l.index.counters.noRoom.Add(1)
		} else {
			p.set(uint32(h))
		}
	}
}

// place puts the first n blocks of a stretch where they were seen before, or in a
// row, and returns how many there was memory for; -1 where so little was left
// that the worker had to be cleared.
func (l *loader) place(r *rank, t kvevent.Tier, depth, n int) int {
	x := l.index
	for i := 0; i < n; {
		got := l.placeSome(r, t, i, depth, min(x.repeats(r, n-i), n-i))
		fresh := 0
		for k := i; k < i+got; k++ {
			if l.again[k] {
				r.repeat(x.room, l.cells[k], t)
			} else {
				fresh++
			}
		}
		x.counted(r, t, fresh)
		i += got
		if got > 0 {
			continue
		}
		if !x.makeRoom(x.reliefs.Load()) {
			return i
		}
		if r.blocks.count == 0 {
			return -1
		}
	}
	return n
}

// placeSome places up to n blocks from number i on, and returns how many.
func (l *loader) placeSome(r *rank, t kvevent.Tier, i, depth, n int) int {
	tree := l.index.tree
	if n == 0 || !r.opened && !r.open(tree) {
		return 0
	}
	if c, ok := l.seen(l.chains[i]); ok {
		return tree.shareAt(c, r.column, t, l.chains[i:i+n], l.cells[i:], l.again[i:])
	}
	return l.create(r, t, i, depth+i, n)
}

// seen returns where a chain is, if anybody holds it still.
func (l *loader) seen(c block.Chain) (cell, bool) {
	at := cell(l.at.get(uint64(c)))
	return at, at != 0 && at != unplaced && l.index.tree.arena.keeps(at, c)
}

// unplaced stands in loader.at for a chain that is about to get a cell.
const unplaced = 1<<32 - 1

// create stores up to n blocks from number i on, up to one that was seen before.
func (l *loader) create(r *rank, t kvevent.Tier, i, depth, n int) int {
	x := l.index
	j := i
	for ; j < i+n; j++ {
		if _, ok := l.seen(l.chains[j]); ok {
			break
		}
		p, known, ok := l.at.insert(purse{x.room, false}, uint64(l.chains[j]), unplaced)
		if !ok || known && p.value() == unplaced {
			break // no memory, or twice in this row
		}
		p.set(unplaced)
	}
	done := i
	for done < j && x.room.affords(0) {
		got := x.tree.create(0, depth+done-i, r.column, t, l.chains[done:j], l.cells[done:j])
		if got == 0 {
			break
		}
		done += got
	}
	clear(l.again[i:done])
	for k := i; k < j; k++ {
		p, _ := l.at.find(uint64(l.chains[k]))
		if k < done {
			p.set(uint32(l.cells[k]))
		} else {
			l.at.remove(p)
		}
	}
	return done - i
}

// adopt makes an index that was loaded this one.
func (x *Index) adopt(loaded *Index) error {
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
	for k := range loaded.ranks {
		if x.ranks[k] == nil {
			strangers++
		}
	}
	if len(x.ranks)+strangers > MaxWorkers {
		return ErrFull
	}
	for _, r := range x.ranks {
		x.empty(r)
		r.opened = false // its column, which nothing has, stays behind
	}
	m := loaded.Memory()
	for k, from := range loaded.ranks {
		r, err := x.registerLocked(k)
		if err != nil {
			return err
		}
		r.blocks, r.again, r.copies, r.count = from.blocks, from.again, from.copies, from.count
		r.column, r.opened = from.column, from.opened
		r.total.Store(from.total.Load())
		r.lossy = m.Evicted+m.NoRoom > 0
		if r.opened {
			loaded.tree.columns.slots[r.column] = r.slot
			loaded.tree.columns.show(r.column, !r.hidden.Load())
		}
	}
	x.counters.entries.Add(loaded.counters.entries.Load())
	x.counters.evicted.Add(m.Evicted)
	x.counters.noRoom.Add(m.NoRoom)
	x.counters.forgotten.Add(m.Forgotten)
	x.lock.Lock()
	defer x.lock.Unlock()
	loaded.tree.slots = len(x.slots)
	x.tree.end()
	x.tree = loaded.tree
	return nil
}
