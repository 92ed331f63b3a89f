package bpe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// block is the reach of a base: its children lie in one aligned run of so many
// slots.
const block = 256

// patience is how many free slots are tried for the children of one node before
// the array grows.
const patience = 64

var errTrieFull = errors.New("vocabulary needs more trie nodes than fit")

// builder lays a trie out. What is below one child is placed before the next, so
// the end of a walk stays within few cache lines.
type builder struct {
	nodes []node
	used  []bool // by base
	// tries counts how often a free slot did not serve. Slots that never do are
	// given up, or they would be tried for every node.
	tries []uint8
	// Free slots are a ring through slot 0, lowest first.
	next, prev []uint32
}

// span is a node whose children are still to be placed: the tokens below it, in
// order, share their first depth bytes.
type span struct {
	slot, from, to, depth uint32
	prefix                uint32 // id plus one of the longest token on the way here
}

// buildTrie returns the trie of all tokens, the slot where each one ends, and
// the longest other token that each one starts with (its id plus one; 0 for
// none). Empty tokens are left out.
func buildTrie(tokens [][]byte) (t trie, ends, prefixes []uint32, err error) {
	order, err := sortTokens(tokens)
	if err != nil {
		return trie{}, nil, nil, err
	}
	ends, prefixes = make([]uint32, len(tokens)), make([]uint32, len(tokens))
	b := newBuilder(4 * len(order.ids))
	var stack []span
	if len(order.ids) > 0 {
		stack = append(stack, span{to: uint32(len(order.ids))})
	}
	var edges []byte
	var parts []span
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		edges, parts = order.split(s, edges[:0], parts[:0])
		base, err := b.place(s.slot, edges)
		if err != nil {
			return trie{}, nil, nil, err
		}
		for i, p := range parts {
			p.slot = base ^ uint32(edges[i])
			if id := order.ids[p.from]; order.size(p.from) == p.depth {
				b.nodes[p.slot] |= node(id+1) << tokenShift
				ends[id], prefixes[id] = p.slot, p.prefix
				p.prefix = id + 1
				p.from++
			}
			if p.from < p.to {
				stack = append(stack, p)
			}
		}
	}
	return trie{nodes: slices.Clone(b.nodes)}, ends, prefixes, nil
}

// sortedTokens is all tokens that have bytes, in the order of these, one after
// another.
type sortedTokens struct {
	ids    []uint32
	text   []byte
	starts []uint32 // in text; one more than ids
}

func (o *sortedTokens) size(i uint32) uint32 { return o.starts[i+1] - o.starts[i] }

// split appends the next bytes of the tokens of a span, and the span of each.
func (o *sortedTokens) split(s span, edges []byte, parts []span) ([]byte, []span) {
	for i := s.from; i < s.to; i++ {
		edge := o.text[o.starts[i]+s.depth]
		if len(edges) == 0 || edges[len(edges)-1] != edge {
			edges = append(edges, edge)
			parts = append(parts, span{from: i, depth: s.depth + 1, prefix: s.prefix})
		}
		parts[len(parts)-1].to = i + 1
	}
	return edges, parts
}

func sortTokens(tokens [][]byte) (*sortedTokens, error) {
	type key struct {
		head uint64 // the first 8 bytes: most comparisons end there
		id   uint32
	}
	keys := make([]key, 0, len(tokens))
	size := 0
	for id, token := range tokens {
		if len(token) > 0 {
			var head [8]byte
			copy(head[:], token)
			keys = append(keys, key{binary.BigEndian.Uint64(head[:]), uint32(id)})
			size += len(token)
		}
	}
	if size > math.MaxUint32 {
		return nil, errTrieFull
	}
	slices.SortFunc(keys, func(a, b key) int {
		if a.head != b.head {
			if a.head < b.head {
				return -1
			}
			return 1
		}
		return bytes.Compare(tokens[a.id], tokens[b.id])
	})
	o := &sortedTokens{make([]uint32, len(keys)), make([]byte, 0, size), make([]uint32, len(keys)+1)}
	for i, k := range keys {
		o.ids[i] = k.id
		o.text = append(o.text, tokens[k.id]...)
		o.starts[i+1] = uint32(len(o.text))
		if i > 0 && bytes.Equal(tokens[k.id], tokens[o.ids[i-1]]) {
			return nil, fmt.Errorf("ids %d and %d are the same token", o.ids[i-1], k.id)
		}
	}
	return o, nil
}

func newBuilder(n int) *builder {
	b := &builder{
		nodes: make([]node, 0, n), used: make([]bool, 0, n), tries: make([]uint8, 0, n),
		next: make([]uint32, 0, n), prev: make([]uint32, 0, n),
	}
	b.grow()
	b.used[0] = true // no children
	return b
}

// place puts the children of a node into free slots and returns their base.
func (b *builder) place(parent uint32, edges []byte) (uint32, error) {
	base, ok := b.search(edges)
	if !ok {
		base = uint32(len(b.nodes)) // the first of a new block fits everything
		b.grow()
	}
	if base >= 1<<baseBits-block {
		return 0, errTrieFull
	}
	b.used[base] = true
	b.nodes[parent] |= node(base) << baseShift
	for _, edge := range edges {
		slot := base ^ uint32(edge)
		b.take(slot)
		b.nodes[slot] = nodeTaken | node(edge)
	}
	return base, nil
}

// search looks for an unused base whose slots for these edges are all free.
func (b *builder) search(edges []byte) (uint32, bool) {
	slot := b.next[0]
	for range patience {
		if slot == 0 {
			break
		}
		base := slot ^ uint32(edges[0])
		if !b.used[base] && b.fits(base, edges) {
			return base, true
		}
		next := b.next[slot]
		if b.tries[slot]++; b.tries[slot] == patience {
			b.take(slot)
		}
		slot = next
	}
	return 0, false
}

func (b *builder) fits(base uint32, edges []byte) bool {
	for _, edge := range edges {
		if slot := base ^ uint32(edge); slot == 0 || b.nodes[slot] != 0 {
			return false
		}
	}
	return true
}

// take removes a slot from the free ones.
func (b *builder) take(slot uint32) {
	if slot == 0 {
		return // the root heads the ring
	}
	b.next[b.prev[slot]], b.prev[b.next[slot]] = b.next[slot], b.prev[slot]
}

// grow adds a block of free slots at the end of the ring.
func (b *builder) grow() {
	from := uint32(len(b.nodes))
	b.nodes = append(b.nodes, make([]node, block)...)
	b.used = append(b.used, make([]bool, block)...)
	b.tries = append(b.tries, make([]uint8, block)...)
	b.next = append(b.next, make([]uint32, block)...)
	b.prev = append(b.prev, make([]uint32, block)...)
	for slot := max(from, 1); slot < from+block; slot++ {
		last := b.prev[0]
		b.next[last], b.prev[slot], b.next[slot], b.prev[0] = slot, last, 0, slot
	}
}
