package bpe

import (
	"fmt"
	"unicode/utf8"
)

// tail is what a step back needs to know of a token.
type tail struct {
	// shorter is the longest closed token that this one starts with, as id plus
	// one; 0 for none.
	shorter uint32
	// size is its length in bytes.
	size uint32
}

// edge is what the walk down the edges of two tokens needs to know of a token.
type edge struct {
	// tree is the last merge of a closed token, with the time when it comes to
	// happen: never before its parts are there. It is 0 for symbols that are
	// there from the start.
	tree tree
	// partners has a bit for each token that this one merges with on its right.
	// Tokens share bits, so a set bit proves nothing; but most lookups of pairs
	// end here, without touching the table.
	partners uint64
}

func partnerBit(right uint32) uint64 { return 1 << (right * 0x9E3779B1 >> 26) }

func (e *edge) join(right uint32)         { e.partners |= partnerBit(right) }
func (e *edge) mayJoin(right uint32) bool { return e.partners&partnerBit(right) != 0 }

// merge is one merge of the specification.
type merge struct{ left, right, time, id uint32 }

// merges returns all merges and what they make.
func (m *Model) merges(spec *Spec, ends []uint32) ([]merge, error) {
	if spec.Ranked {
		return m.implied(spec)
	}
	list := make([]merge, len(spec.Merges))
	for i, pair := range spec.Merges {
		end, ok := m.trie.walk(ends[pair[0]], spec.Tokens[pair[1]])
		var id uint32
		if ok {
			id, ok = m.trie.nodes[end].token()
		}
		if !ok {
			return nil, fmt.Errorf("merge %d makes a token that is not in the vocabulary", i)
		}
		list[i] = merge{pair[0], pair[1], uint32(i + 1), id}
	}
	return list, nil
}

// implied returns the merges of a ranked vocabulary: each way to cut a token
// into two tokens.
func (m *Model) implied(spec *Spec) ([]merge, error) {
	var list []merge
	for id, token := range spec.Tokens {
		slot := uint32(0)
		for i := 1; i < len(token); i++ {
			slot, _ = m.trie.child(m.trie.nodes[slot], token[i-1])
			left, ok := m.trie.nodes[slot].token()
			if !ok {
				continue
			}
			end, ok := m.trie.walk(0, token[i:])
			if !ok {
				continue
			}
			if right, ok := m.trie.nodes[end].token(); ok {
				list = append(list, merge{left, right, uint32(id + 1), uint32(id)})
			}
		}
		if len(list) > maxMerges {
			return nil, fmt.Errorf("vocabulary implies more than %d merges", maxMerges)
		}
	}
	return list, nil
}

// derive finds the closed tokens and where they come from, shortest first, so
// that the parts of a token, and all that merges inside it before they do, are
// known before it. Only the last merges of closed tokens ever happen, so only
// these are kept.
func (m *Model) derive(spec *Spec, list []merge) (closed []bool) {
	closed = make([]bool, len(spec.Tokens))
	m.edges, m.tails = make([]edge, len(spec.Tokens)), make([]tail, len(spec.Tokens))
	for id, token := range spec.Tokens {
		m.tails[id].size = uint32(len(token))
		closed[id] = m.isSymbol(token)
	}
	m.touching = newTouching()
	m.pairs = newPairTable(min(len(list), len(spec.Tokens)))
	for _, at := range m.bySize(list) {
		c := &list[at]
		if !closed[c.left] || !closed[c.right] {
			continue
		}
		left, right, whole := &m.edges[c.left], &m.edges[c.right], &m.edges[c.id]
		// A closed token has one last merge. To find it again is to find it
		// listed twice.
		if closed[c.id] {
			if whole.tree.left() != c.left || whole.tree.right() != c.right {
				continue
			}
		} else if !m.meet(c.left, c.right) {
			continue
		}
		closed[c.id] = true
		whole.tree = packTree(c.left, c.right, max(c.time, left.tree.time(), right.tree.time()))
		left.join(c.right)
		m.pairs.set(c.left, c.right, c.time)
		m.touching.add(spec.Tokens[c.id], int(m.tails[c.left].size))
	}
	return closed
}

// isSymbol reports whether a token is a symbol that words start as.
func (m *Model) isSymbol(token []byte) bool {
	if !m.chars || len(token) < 2 {
		return len(token) == 1
	}
	_, size := utf8.DecodeRune(token)
	return size == len(token)
}

// bySize returns the places of all merges in a list, those of the shortest
// results first, otherwise in order.
func (m *Model) bySize(list []merge) []uint32 {
	longest := uint32(0)
	for i := range list {
		longest = max(longest, m.tails[list[i].id].size)
	}
	starts := make([]uint32, longest+2)
	for i := range list {
		starts[m.tails[list[i].id].size+1]++
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	order := make([]uint32, len(list))
	for i := range list {
		at := &starts[m.tails[list[i].id].size]
		order[*at] = uint32(i)
		*at++
	}
	return order
}

// link marks the closed tokens in the trie, and links each token to the longest
// closed one that it starts with.
func (m *Model) link(closed []bool, ends, prefixes []uint32) {
	for id, is := range closed {
		if is {
			m.trie.nodes[ends[id]] |= nodeClosed
		}
		shorter := prefixes[id]
		for shorter != 0 && !closed[shorter-1] {
			shorter = prefixes[shorter-1]
		}
		m.tails[id].shorter = shorter
	}
}
