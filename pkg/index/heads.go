package index

import "github.com/warmpath/warmpath/pkg/block"

// heads finds a run by its first chain: open addressing with linear probing, in
// many small tables, so that none takes long to grow. The tag spares looking at
// runs that are not meant.
type heads struct {
	room   *budget
	shards [headShards]headShard
	count  int
	most   int // entries of the largest table
}

type headShard struct {
	entries []head
	count   int
}

type head struct {
	run uint32 // 0: empty
	tag uint32
}

// headShards is how many tables there are; the high bits of a tag choose one.
const (
	headShardBits = 9
	headShards    = 1 << headShardBits
)

func (h *heads) shard(tag uint32) *headShard { return &h.shards[tag>>(32-headShardBits)] }

// tagOf returns the hash of a chain: the entry's home is in its low bits.
func tagOf(c block.Chain) uint32 { return uint32(mix(uint64(c)) >> 32) }

// find returns the run that a chain begins, 0 for none.
func (x *tree) find(c block.Chain) uint32 {
	tag := tagOf(c)
	entries := x.heads.shard(tag).entries
	if len(entries) == 0 {
		return 0
	}
	mask := uint32(len(entries) - 1)
	for at := tag & mask; ; at = (at + 1) & mask {
		e := entries[at]
		if e.run == 0 {
			return 0
		}
		if e.tag == tag && x.arena.chain(x.run(e.run).start) == c {
			return e.run
		}
	}
}

// enter makes a run found by its first chain.
func (h *heads) enter(c block.Chain, run uint32) {
	tag := tagOf(c)
	s := h.shard(tag)
	if s.count*5 >= len(s.entries)*3 {
		old := s.entries
		s.entries = make([]head, max(minHeads, 2*len(old)))
		h.grew(len(old), len(s.entries))
		for _, e := range old {
			if e.run != 0 {
				s.put(e)
			}
		}
	}
	s.put(head{run, tag})
	s.count++
	h.count++
}

// minHeads and headBytes are the size of a table at first, and of an entry.
const (
	minHeads  = 8
	headBytes = 8
)

// need is the most that a step takes here: it enters two runs.
func (h *heads) need() int64 { return 2 * headBytes * int64(max(minHeads, h.most)) }

// grew counts that a table got more entries.
func (h *heads) grew(from, to int) {
	before := h.need()
	h.most = max(h.most, to)
	h.room.add(int64(to-from) * headBytes)
	h.room.need.Add(h.need() - before)
}

func (s *headShard) put(e head) {
	mask := uint32(len(s.entries) - 1)
	at := e.tag & mask
	for s.entries[at].run != 0 {
		at = (at + 1) & mask
	}
	s.entries[at] = e
}

// at returns the position of a run's entry.
func (s *headShard) at(tag, run uint32) uint32 {
	mask := uint32(len(s.entries) - 1)
	at := tag & mask
	for s.entries[at].run != run {
		at = (at + 1) & mask
	}
	return at
}

// rename gives the entry of one run to another that begins with the same chain.
func (h *heads) rename(c block.Chain, from, to uint32) {
	tag := tagOf(c)
	s := h.shard(tag)
	s.entries[s.at(tag, from)].run = to
}

// remove takes a run's entry away and closes the gap.
func (h *heads) remove(c block.Chain, run uint32) {
	tag := tagOf(c)
	s := h.shard(tag)
	mask := uint32(len(s.entries) - 1)
	at := s.at(tag, run)
	s.count--
	h.count--
	for next := (at + 1) & mask; s.entries[next].run != 0; next = (next + 1) & mask {
		if (next-s.entries[next].tag)&mask >= (next-at)&mask {
			s.entries[at] = s.entries[next]
			at = next
		}
	}
	s.entries[at] = head{}
}
