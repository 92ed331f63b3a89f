package index

import "github.com/warmpath/warmpath/pkg/kvevent"

// table is one worker's map from engine hash to where the block lives. It is
// extendible: the high bits of a hash choose a segment of at most about a
// thousand entries, and only the segment that is full is ever rehashed.
type table struct {
	dir   []*segment // 1<<depth entries
	count int
	size  int64  // bytes of the directory and of all segments, as the budget has them
	moves uint32 // counts changes after which positions found before mean nothing
	depth uint8
	// rebuilt is how many keys there were when the table was last rebuilt, 0 once it
	// has grown since.
	rebuilt int
}

// segment is an open-addressing table with linear probing.
type segment struct {
	depth   uint8 // high bits that all its keys share
	count   int
	entries []entry
}

// entry is a key in two halves and a value, 12 bytes. The value 0 is empty.
type entry struct{ lo, hi, value uint32 }

const (
	entryBytes   = 12
	segmentBytes = 48 // with its allocation rounded up
	maxSegment   = 1024
	maxDepth     = 16 // deeper, crowded keys are crafted: segments grow instead
)

// steps are sizes of segments. They fill the runtime's allocation classes. The
// one before the last is what half a full segment gets: larger would waste memory,
// smaller would be rehashed too often.
var steps = [...]int{8, 32, 128, 341, 682, maxSegment}

// place is where a key was found.
type place struct {
	seg *segment
	at  uint32
}

func mix(key uint64) uint64 {
	key *= 0x9e3779b97f4a7c15
	key ^= key >> 32
	return key * 0xd6e8feb86659fd93
}

func home(hash uint64, n int) uint32 { return uint32(hash & 0xffffffff * uint64(n) >> 32) }

func (t *table) segment(hash uint64) *segment { return t.dir[hash>>(64-t.depth)] }

// find returns where a key is, or ok false.
func (t *table) find(key uint64) (place, bool) {
	if t.count == 0 {
		return place{}, false
	}
	hash := mix(key)
	s := t.segment(hash)
	at, ok := s.find(key, hash)
	return place{s, at}, ok
}

// find returns the position of a key, or of the empty entry where it belongs.
func (s *segment) find(key, hash uint64) (uint32, bool) {
	lo, hi := uint32(key), uint32(key>>32)
	entries := s.entries
	at := home(hash, len(entries))
	for {
		e := &entries[at]
		if e.value == 0 {
			return at, false
		}
		if e.lo == lo && e.hi == hi {
			return at, true
		}
		if at++; int(at) == len(entries) {
			at = 0
		}
	}
}

// get returns a key's value, 0 for none.
func (t *table) get(key uint64) uint32 {
	if p, ok := t.find(key); ok {
		return p.seg.entries[p.at].value
	}
	return 0
}

func (p place) value() uint32    { return p.seg.entries[p.at].value }
func (p place) set(value uint32) { p.seg.entries[p.at].value = value }

// insert returns where a key is, having put it there with a value if it was not.
// It is not ok, and has done nothing, where there is no memory for that.
func (t *table) insert(from purse, key uint64, value uint32) (p place, known, ok bool) {
	if t.dir == nil {
		size := 8 + segmentBytes + entriesBytes(steps[0])
		if !from.take(size) {
			return place{}, false, false
		}
		t.dir = []*segment{{entries: make([]entry, steps[0])}}
		t.size = size
	}
	hash := mix(key)
	for {
		s := t.segment(hash)
		at, ok := s.find(key, hash)
		if ok {
			return place{s, at}, true, true
		}
		if s.count < len(s.entries)-len(s.entries)/8 {
			s.entries[at] = entry{uint32(key), uint32(key >> 32), value}
			s.count++
			t.count++
			return place{s, at}, false, true
		}
		if !t.widen(from, s, hash) {
			return place{}, false, false
		}
	}
}

// widen makes room in a full segment, or does nothing and returns false where
// there is no memory for that.
func (t *table) widen(from purse, s *segment, hash uint64) bool {
	if n := len(s.entries); n < maxSegment || s.depth >= maxDepth {
		more := entriesBytes(sizeFor(n+1)) - entriesBytes(n)
		if !from.take(more) {
			return false
		}
		t.size += more
		t.moves++
		t.rebuilt = 0
		s.rehash(s.entries, sizeFor(n+1), 0, 0)
		return true
	}
	bit, upper := uint64(1)<<(63-s.depth), 0
	old := s.entries
	for i := range old {
		if e := &old[i]; e.value != 0 && mix(e.key())&bit != 0 {
			upper++
		}
	}
	low, high := sizeFor((s.count-upper)*9/7), sizeFor(upper*9/7)
	more := segmentBytes + entriesBytes(low) + entriesBytes(high) - entriesBytes(len(old))
	if s.depth == t.depth {
		more += int64(len(t.dir)) * 8
	}
	if !from.take(more) {
		return false
	}
	t.size += more
	t.moves++
	t.rebuilt = 0
	if s.depth == t.depth {
		dir := make([]*segment, 2*len(t.dir))
		for i, o := range t.dir {
			dir[2*i], dir[2*i+1] = o, o
		}
		t.dir = dir
		t.depth++
	}
	s.depth++
	other := &segment{depth: s.depth}
	s.rehash(old, low, bit, 0)
	other.rehash(old, high, bit, bit)
	// All directory entries of s lie side by side; the upper half becomes other's.
	span := 1 << (t.depth - s.depth)
	first := int(hash>>(64-t.depth)) &^ (2*span - 1)
	for i := first + span; i < first+2*span; i++ {
		t.dir[i] = other
	}
	return true
}

func (e *entry) key() uint64 { return uint64(e.hi)<<32 | uint64(e.lo) }

// sizeFor returns the smallest size of a segment that is at least n.
func sizeFor(n int) int {
	for _, s := range steps {
		if s >= n {
			return s
		}
	}
	size := maxSegment
	for size < n {
		size *= 2
	}
	return size
}

// entriesBytes is what the runtime allocates for a segment's entries.
func entriesBytes(n int) int64 {
	const class = 1 << 12 // the steps that do not fill theirs are just below these
	size := int64(n) * entryBytes
	if size%class > class-entryBytes {
		size += class - size%class
	}
	return size
}

// rehash fills a segment anew with those of some entries whose hash has want in
// the place of bit.
func (s *segment) rehash(from []entry, size int, bit, want uint64) {
	entries := make([]entry, size)
	count := 0
	for i := range from {
		e := &from[i]
		if e.value == 0 {
			continue
		}
		hash := mix(e.key())
		if hash&bit != want {
			continue
		}
		at := home(hash, size)
		for entries[at].value != 0 {
			if at++; int(at) == size {
				at = 0
			}
		}
		entries[at] = *e
		count++
	}
	s.entries, s.count = entries, count
}

// warm reads where keys belong, so that the memory is near when they are looked
// up one by one: the reads do not wait for each other.
func (t *table) warm(blocks []kvevent.Block) (sum uint32) {
	if len(t.dir) == 0 {
		return 0
	}
	for i := range blocks {
		hash := mix(uint64(blocks[i].Engine))
		s := t.segment(hash)
		sum += s.entries[home(hash, len(s.entries))].value
	}
	return sum
}

// remove takes away what lies at a place and closes the gap.
func (t *table) remove(p place) {
	t.moves++
	t.count--
	s, at := p.seg, p.at
	s.count--
	n := uint32(len(s.entries))
	for next := at; ; {
		if next++; next == n {
			next = 0
		}
		e := &s.entries[next]
		if e.value == 0 {
			break
		}
		// Entries are moved back as far as their home allows.
		want := home(mix(e.key()), int(n))
		if (next+n-want)%n >= (next+n-at)%n {
			s.entries[at] = *e
			at = next
		}
	}
	s.entries[at] = entry{}
}

// each calls f with every key and value until f returns false.
func (t *table) each(f func(key uint64, value uint32) bool) {
	for i, s := range t.dir {
		if i > 0 && t.dir[i-1] == s {
			continue
		}
		for j := range s.entries {
			if e := &s.entries[j]; e.value != 0 && !f(e.key(), e.value) {
				return
			}
		}
	}
}
