package index

import (
	"math/bits"
	"slices"
)

// column is a worker's place in holder sets. A worker that is cleared gets
// another, so that what it held vanishes at once.
type column uint32

// maxColumns leaves as many columns to swept-out generations as to workers.
const maxColumns = 2 * MaxWorkers

// setID names a set of columns. Equal sets have equal ids: 0 is empty, small
// ids are one column each, all others an entry of a pool.
type setID uint32

const (
	manyBit   setID = 1 << 31
	classBits       = 28
	indexMask setID = 1<<classBits - 1
	classes         = 8 // 1, 2, 4 … 128 words
	poolChunk       = 256
)

// setTables is how many tables find sets by their sums: the high bits of a sum
// choose one. Each is small, so that none takes long to grow.
const (
	setTableBits = 6
	setTables    = 1 << setTableBits
)

// setTable is open addressing by sum; 0 is empty.
type setTable struct {
	ids   []setID
	count int
}

func (h *holders) table(sum uint32) *setTable { return &h.tables[sum>>(32-setTableBits)] }

func single(c column) setID { return setID(c) + 1 }

// pool keeps the sets whose highest column needs the same power of two of words.
type pool struct {
	words [][]uint64 // poolChunk sets each
	marks []*[poolChunk]mark
	used  uint32 // sets below it have been in use
	free  uint32 // a set not in use, plus one, whose sum is another; 0: none
}

// mark is what is known of a set besides its content.
type mark struct {
	refs uint32 // runs that have this set
	sum  uint32 // hash of the content
}

// listedChunk is what a chunk of a pool takes in the lists of chunks, and
// markBytes what its marks do.
const (
	listedChunk = 24 + 8
	markBytes   = poolChunk * 8
)

func (h *holders) mark(id setID) *mark {
	i := id & indexMask
	return &h.pools[id>>classBits&(classes-1)].marks[i/poolChunk][i%poolChunk]
}

// holders interns sets of columns, counting the runs that have each.
type holders struct {
	room  *budget
	need  int64 // the most that a step takes here, as the budget has it
	class int   // the highest that columns given out need
	most  int   // entries of the largest table

	pools   [classes]pool
	tables  [setTables]setTable
	count   int
	scratch [maxColumns / wordBits]uint64

	// The last addition. A worker that stores what others hold asks for the
	// same one run after run.
	from, to setID
	col      column
}

func (h *holders) words(id setID) []uint64 {
	class := id >> classBits & (classes - 1)
	i, n := int(id&indexMask), 1<<class
	at := i % poolChunk * n
	return h.pools[class].words[i/poolChunk][at : at+n]
}

func (h *holders) has(id setID, c column) bool {
	if id&manyBit == 0 {
		return id == single(c)
	}
	w := h.words(id)
	return int(c/wordBits) < len(w) && w[c/wordBits]>>(c%wordBits)&1 == 1
}

// load writes a set to the scratch and returns its words.
func (h *holders) load(id setID) []uint64 {
	if id == 0 {
		return h.scratch[:0]
	}
	if id&manyBit == 0 {
		c := column(id - 1)
		n := int(c/wordBits) + 1
		clear(h.scratch[:n])
		h.scratch[c/wordBits] = 1 << (c % wordBits)
		return h.scratch[:n]
	}
	return h.scratch[:copy(h.scratch[:], h.words(id))]
}

// with returns the set that also has a column.
func (h *holders) with(id setID, c column) setID {
	if id == 0 {
		return single(c)
	}
	if id == h.from && c == h.col && h.to != 0 {
		return h.to
	}
	w := h.load(id)
	for len(w) <= int(c/wordBits) {
		w = h.scratch[:len(w)+1]
		w[len(w)-1] = 0
	}
	w[c/wordBits] |= 1 << (c % wordBits)
	h.from, h.col, h.to = id, c, h.intern(w)
	return h.to
}

// without returns the set that lacks a column.
func (h *holders) without(id setID, c column) setID {
	if id&manyBit == 0 {
		if id == single(c) {
			return 0
		}
		return id
	}
	w := h.load(id)
	if int(c/wordBits) < len(w) {
		w[c/wordBits] &^= 1 << (c % wordBits)
	}
	return h.intern(w)
}

// minus returns the set that lacks all columns of others.
func (h *holders) minus(id setID, others []uint64) setID {
	if id&manyBit == 0 {
		if id != 0 && hasBit(others, column(id-1)) {
			return 0
		}
		return id
	}
	own, hit := h.words(id), uint64(0)
	for i := range min(len(own), len(others)) {
		hit |= own[i] & others[i]
	}
	if hit == 0 {
		return id
	}
	w := h.load(id)
	for i := range min(len(w), len(others)) {
		w[i] &^= others[i]
	}
	return h.intern(w)
}

// intern returns the id of the set in w, which is scratch.
func (h *holders) intern(w []uint64) setID {
	for len(w) > 0 && w[len(w)-1] == 0 {
		w = w[:len(w)-1]
	}
	if len(w) == 0 {
		return 0
	}
	ones := 0
	for _, word := range w {
		ones += bits.OnesCount64(word)
	}
	if ones == 1 {
		return single(column((len(w)-1)*wordBits + bits.TrailingZeros64(w[len(w)-1])))
	}
	class := bits.Len(uint(len(w) - 1))
	full := h.scratch[:1<<class]
	clear(full[len(w):])
	sum := sumOf(full)
	t := h.table(sum)
	if len(t.ids) == 0 {
		t.ids = make([]setID, minSets)
		h.grew(minSets * 4)
	}
	mask := uint32(len(t.ids) - 1)
	for at := sum & mask; t.ids[at] != 0; at = (at + 1) & mask {
		if id := t.ids[at]; int(id>>classBits&(classes-1)) == class && h.sum(id) == sum && slices.Equal(h.words(id), full) {
			return id
		}
	}
	id := h.create(class, sum)
	copy(h.words(id), full)
	h.enter(id, sum)
	return id
}

func (h *holders) sum(id setID) uint32 { return h.mark(id).sum }

func (h *holders) create(class int, sum uint32) setID {
	p := &h.pools[class]
	i := p.free - 1
	if p.free == 0 {
		i = p.used
		p.used++
		if int(i)/poolChunk == len(p.words) {
			h.addChunk(class)
		}
	}
	id := manyBit | setID(class)<<classBits | setID(i)
	m := h.mark(id)
	if p.free != 0 {
		p.free = m.sum
	}
	*m = mark{sum: sum}
	return id
}

// addChunk makes room for more sets.
func (h *holders) addChunk(class int) {
	p := &h.pools[class]
	more := poolBytes(class)
	if n := cap(p.words); len(p.words) == n {
		p.words = append(make([][]uint64, 0, max(4, 2*n)), p.words...)
		p.marks = append(make([]*[poolChunk]mark, 0, max(4, 2*n)), p.marks...)
		more += int64(max(4, n)) * listedChunk
	}
	p.words = append(p.words, make([]uint64, poolChunk<<class))
	p.marks = append(p.marks, new([poolChunk]mark))
	h.grew(more)
}

func poolBytes(class int) int64 { return poolChunk<<class*8 + markBytes }

// minSets is how many entries a table has at first.
const minSets = 4

// stepSets is how many new sets a step may need: one per tier where a run is
// swept, and one for what it is about.
const stepSets = 5

// grew counts bytes allocated here, and what a step may need from now on.
func (h *holders) grew(bytes int64) {
	need := int64(stepSets * 4 * max(minSets, h.most))
	for class := range h.class + 1 {
		need += poolBytes(class) + int64(max(4, cap(h.pools[class].words)))*listedChunk
	}
	h.room.add(bytes)
	h.room.need.Add(need - h.need)
	h.need = need
}

func (h *holders) enter(id setID, sum uint32) {
	t := h.table(sum)
	if t.count*4 >= len(t.ids)*3 {
		old := t.ids
		t.ids = make([]setID, 2*len(old))
		h.most = max(h.most, len(t.ids))
		h.grew(int64(len(old)) * 4)
		for _, o := range old {
			if o != 0 {
				t.put(o, h.sum(o))
			}
		}
	}
	t.put(id, sum)
	t.count++
	h.count++
}

func (t *setTable) put(id setID, sum uint32) {
	mask := uint32(len(t.ids) - 1)
	at := sum & mask
	for t.ids[at] != 0 {
		at = (at + 1) & mask
	}
	t.ids[at] = id
}

// ref counts one more run that has a set.
func (h *holders) ref(id setID) {
	if id&manyBit != 0 {
		h.mark(id).refs++
	}
}

// unref counts one run less; a set that no run has goes.
func (h *holders) unref(id setID) {
	if id&manyBit == 0 {
		return
	}
	m := h.mark(id)
	if m.refs--; m.refs > 0 {
		return
	}
	h.count--
	h.to = 0
	t := h.table(m.sum)
	t.count--
	mask := uint32(len(t.ids) - 1)
	at := m.sum & mask
	for t.ids[at] != id {
		at = (at + 1) & mask
	}
	// Close the gap, so that no search ends early.
	for next := (at + 1) & mask; t.ids[next] != 0; next = (next + 1) & mask {
		if (next-h.sum(t.ids[next]))&mask >= (next-at)&mask {
			t.ids[at] = t.ids[next]
			at = next
		}
	}
	t.ids[at] = 0
	p := &h.pools[id>>classBits&(classes-1)]
	m.sum, p.free = p.free, uint32(id&indexMask)+1
}

func sumOf(w []uint64) uint32 {
	s := uint64(len(w))
	for _, word := range w {
		s = (s ^ word) * 0x9e3779b97f4a7c15
		s ^= s >> 29
	}
	return uint32(s ^ s>>32)
}

func hasBit(w []uint64, c column) bool {
	return int(c/wordBits) < len(w) && w[c/wordBits]>>(c%wordBits)&1 == 1
}

// setBit sets a bit, lengthening w as needed.
func setBit(w []uint64, c column) []uint64 {
	for len(w) <= int(c/wordBits) {
		w = append(w, 0)
	}
	w[c/wordBits] |= 1 << (c % wordBits)
	return w
}

func clearBit(w []uint64, c column) { w[c/wordBits] &^= 1 << (c % wordBits) }
