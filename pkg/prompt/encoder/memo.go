package encoder

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/warmpath/warmpath/pkg/block"
)

// memo keeps, for prompts seen before, the state of the computation at cuts of
// their text. Nodes are named by what the text is from its start up to the cut,
// so prompts share the nodes of the beginning they share, whoever sent them.
//
// Why a cut found in one text holds in another that begins the same: a segment
// ends with an added token that ends the same way whatever follows (it is not
// single_word, does not take in white space on its right, and is the beginning
// of no longer token), and what follows is encoded without a look at what was
// before. So the ids up to the cut are a function of the text up to the cut.
type memo struct {
	layout block.Layout
	random uint64 // seed of all keys, so that nobody can aim at a collision
	first  int    // bytes to the first cut, at least
	marks  *marks
	shards []shard
	mask   uint64

	hits, misses, reused, fresh atomic.Uint64
}

const (
	// minCut is the fewest bytes from one cut to the next.
	minCut = 256
	// minTail is the fewest bytes behind the last cut of a prompt that are
	// worth a node of their own.
	minTail = 512
	// cutPerBlock are the fewest bytes of a node per token of a block. With
	// large blocks, the tokens of an unfinished block take most of a node.
	cutPerBlock = 8
	// cutShare says that a node covers at least this share of the text before
	// it, so that no prompt can fill the memo with small nodes: 10 MB make some
	// 1,500.
	cutShare = 256

	shardBudget = 1 << 20 // bytes of a shard, about, until there are maxShards
	maxShards   = 32
)

// newMemo returns nil when budget is too small for anything.
func newMemo(layout block.Layout, budget int64, random uint64) *memo {
	n := 1
	for n < maxShards && budget/int64(2*n) >= shardBudget {
		n *= 2
	}
	m := &memo{
		layout: layout,
		random: random,
		first:  max(minCut, cutPerBlock*layout.Size),
		marks:  newMarks(),
		shards: make([]shard, n),
		mask:   uint64(n - 1),
	}
	for i := range m.shards {
		if !m.shards[i].init(layout, budget/int64(n)) {
			return nil
		}
	}
	return m
}

// least is how many bytes there are at least from a cut to the next.
func (m *memo) least(cut int) int { return max(m.first, cut/cutShare) }

func (m *memo) shard(k key) *shard { return &m.shards[k.Hi&m.mask] }

// root names the start of a prompt: what decides about ids and hashes besides
// the text.
func (m *memo) root(seed block.Seed, special bool) key {
	var buf [9]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(seed))
	if special {
		buf[8] = 1
	}
	return key(xxh3.Hash128Seed(buf[:], m.random))
}

// child names the node behind text that follows the node k. A text that ends at
// a cut and one that ends with its prompt are two things.
func (m *memo) child(k key, text string, toEnd bool) key {
	h := xxh3.HashString128Seed(text, m.random)
	var buf [33]byte
	binary.LittleEndian.PutUint64(buf[:], k.Hi)
	binary.LittleEndian.PutUint64(buf[8:], k.Lo)
	binary.LittleEndian.PutUint64(buf[16:], h.Hi)
	binary.LittleEndian.PutUint64(buf[24:], h.Lo)
	if toEnd {
		buf[32] = 1
	}
	return key(xxh3.Hash128Seed(buf[:], m.random))
}

// Stats are the counters of an encoder's memo. All but Nodes and Bytes only grow.
type Stats struct {
	// Hits are prompts of which the memo knew a beginning, Misses the others.
	Hits, Misses uint64
	// BytesReused are bytes of prompt text that the memo spared, BytesTokenized
	// those that had to be tokenized.
	BytesReused, BytesTokenized uint64
	// Nodes are the nodes held now.
	Nodes uint64
	// Bytes are the bytes of memory taken now. They never exceed
	// Config.MemoBytes.
	Bytes int64
	// Evicted are the nodes that had to go to make room.
	Evicted uint64
}

func (m *memo) stats() Stats {
	s := Stats{
		Hits: m.hits.Load(), Misses: m.misses.Load(),
		BytesReused: m.reused.Load(), BytesTokenized: m.fresh.Load(),
	}
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		s.Nodes += uint64(sh.nodes)
		s.Evicted += sh.evicted
		s.Bytes += sh.bytes()
		sh.mu.Unlock()
	}
	return s
}
