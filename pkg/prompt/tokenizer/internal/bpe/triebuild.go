package bpe

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// block is the reach of a base: its children lie in one aligned run of so many
// slots.
const block = 256

// patience is how many free slots are tried for the children of one node before
// the array grows.
const patience = 64

var errTrieFull = errors.New("vocabulary needs more trie nodes than fit")

// builder lays a trie out. Nodes are placed level by level, so the first steps
// of all walks share few cache lines.
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
	order, err := sorted(tokens)
	if err != nil {
		return trie{}, nil, nil, err
	}
	ends, prefixes = make([]uint32, len(tokens)), make([]uint32, len(tokens))
	b := &builder{}
	b.grow()
	b.take(0)
	b.used[0] = true // no children
	queue := []span{{to: uint32(len(order))}}
	var edges []byte
	var parts []span
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.from == s.to {
			continue
		}
		edges, parts = edges[:0], parts[:0]
		for i := s.from; i < s.to; i++ {
			edge := tokens[order[i]][s.depth]
			if len(edges) == 0 || edges[len(edges)-1] != edge {
				edges = append(edges, edge)
				parts = append(parts, span{from: i, depth: s.depth + 1, prefix: s.prefix})
			}
			parts[len(parts)-1].to = i + 1
		}
		base, err := b.place(s.slot, edges)
		if err != nil {
			return trie{}, nil, nil, err
		}
		for i, p := range parts {
			p.slot = base ^ uint32(edges[i])
			if id := order[p.from]; uint32(len(tokens[id])) == p.depth {
				b.nodes[p.slot] |= node(id+1) << tokenShift
				ends[id], prefixes[id] = p.slot, p.prefix
				p.prefix = id + 1
				p.from++
			}
			queue = append(queue, p)
		}
	}
	return trie{nodes: b.nodes}, ends, prefixes, nil
}

// sorted returns the ids of all tokens that have bytes, in the order of these.
func sorted(tokens [][]byte) ([]uint32, error) {
	type key struct {
		head uint64 // the first 8 bytes: most comparisons end there
		id   uint32
	}
	keys := make([]key, 0, len(tokens))
	for id, token := range tokens {
		if len(token) > 0 {
			var head [8]byte
			copy(head[:], token)
			keys = append(keys, key{binary.BigEndian.Uint64(head[:]), uint32(id)})
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		if c := cmp.Compare(a.head, b.head); c != 0 {
			return c
		}
		return bytes.Compare(tokens[a.id], tokens[b.id])
	})
	order := make([]uint32, len(keys))
	for i, k := range keys {
		order[i] = k.id
		if i > 0 && bytes.Equal(tokens[k.id], tokens[order[i-1]]) {
			return nil, fmt.Errorf("ids %d and %d are the same token", order[i-1], k.id)
		}
	}
	return order, nil
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
