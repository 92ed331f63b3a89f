package index

// growth is the most that a table takes to insert n more keys, for tables whose
// keys nobody chose to crowd.
func (t *table) growth(n int) int64 {
	const segment = segmentBytes + maxSegment*entryBytes
	if len(t.dir) <= 1 && t.count+n <= maxSegment/2 {
		return segment + 8
	}
	// Each may split a segment, into halves of twice the size where one is empty;
	// then all the directories of the way double once more.
	more := int64(n)*2*segment + int64(len(t.dir))*8<<min(n, maxDepth-int(t.depth))
	if t.depth == maxDepth {
		more += t.size
	}
	return more
}

// release gives a table's memory back and leaves it empty.
func (t *table) release(room *budget) {
	room.add(-t.size)
	*t = table{moves: t.moves + 1}
}

// sparseBytes is what a table may take per key before it is sparse, and minSparse
// what it may take in any case.
const (
	sparseBytes = 6 * entryBytes
	minSparse   = 1 << 12
)

// sparse reports whether a table is far too big for what is left in it, and has
// lost half of it since it was last rebuilt.
func (t *table) sparse() bool {
	return t.size > minSparse+int64(t.count)*sparseBytes && (t.rebuilt == 0 || t.count <= t.rebuilt/2)
}

// rebuild makes a table as small as its keys allow, if that is smaller.
func (t *table) rebuild(room *budget) {
	if t.count == 0 {
		t.release(room)
		return
	}
	depth := uint8(0)
	for t.count>>depth > maxSegment/2 && depth < maxDepth {
		depth++
	}
	counts := make([]int, 1<<depth)
	t.each(func(key uint64, _ uint32) bool {
		counts[mix(key)>>(64-depth)]++
		return true
	})
	size := int64(len(counts)) * (8 + segmentBytes)
	for _, n := range counts {
		size += entriesBytes(sizeFor(n*9/7 + 1))
	}
	t.rebuilt = t.count
	if size >= t.size {
		return
	}
	next := table{depth: depth, count: t.count, moves: t.moves + 1, size: size, rebuilt: t.count, dir: make([]*segment, len(counts))}
	for i, n := range counts {
		next.dir[i] = &segment{depth: depth, count: n, entries: make([]entry, sizeFor(n*9/7+1))}
	}
	t.each(func(key uint64, value uint32) bool {
		hash := mix(key)
		s := next.segment(hash)
		at, _ := s.find(key, hash)
		s.entries[at] = entry{uint32(key), uint32(key >> 32), value}
		return true
	})
	room.add(size - t.size)
	*t = next
}

// shrink gives back what segments have left after many keys went.
func (t *table) shrink(room *budget) {
	if t.count == 0 || t.sparse() {
		t.rebuild(room)
		return
	}
	t.moves++
	for i, s := range t.dir {
		if i > 0 && t.dir[i-1] == s {
			continue
		}
		// Room for some more, so that it does not grow again at once.
		size := sizeFor(s.count*9/7 + 1)
		if less := entriesBytes(len(s.entries)) - entriesBytes(size); less > 0 {
			s.rehash(s.entries, size, 0, 0)
			t.size -= less
			room.add(-less)
		}
	}
}
