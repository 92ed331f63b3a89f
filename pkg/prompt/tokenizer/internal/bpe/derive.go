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

// addMerges fills the table of pairs and the results of merges.
func (m *Model) addMerges(spec *Spec, ends []uint32) error {
	if spec.Ranked {
		return m.addRanked(spec, ends)
	}
	m.pairs = newPairTable(len(spec.Merges))
	m.results = make([]uint32, len(spec.Merges)+1)
	for i, pair := range spec.Merges {
		end, ok := m.trie.walk(ends[pair[0]], spec.Tokens[pair[1]])
		var id uint32
		if ok {
			id, ok = m.trie.nodes[end].token()
		}
		if !ok {
			return fmt.Errorf("merge %d makes a token that is not in the vocabulary", i)
		}
		m.pairs.set(pair[0], pair[1], uint32(i+1))
		m.results[i+1] = id
	}
	return nil
}

// addRanked adds the merges that a ranked vocabulary implies: each way to cut a
// token into two tokens.
func (m *Model) addRanked(spec *Spec, ends []uint32) error {
	type cut struct{ left, right, id uint32 }
	var cuts []cut
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
				cuts = append(cuts, cut{left, right, uint32(id)})
			}
		}
		if len(cuts) > maxMerges {
			return fmt.Errorf("vocabulary implies more than %d merges", maxMerges)
		}
	}
	m.pairs = newPairTable(len(cuts))
	for _, c := range cuts {
		m.pairs.set(c.left, c.right, c.id+1)
	}
	m.results = make([]uint32, len(spec.Tokens)+1)
	for id := range spec.Tokens {
		m.results[id+1] = uint32(id)
	}
	return nil
}

// derive finds the closed tokens and where they come from, shortest first, so
// that the parts of a token are known before it.
func (m *Model) derive(spec *Spec, ends, prefixes []uint32) {
	m.trees, m.tails = make([]tree, len(spec.Tokens)), make([]tail, len(spec.Tokens))
	for id, token := range spec.Tokens {
		m.tails[id].size = uint32(len(token))
		if m.isSymbol(token) {
			m.close(uint32(id), ends)
		}
	}
	for _, c := range m.candidates() {
		left, right, rank := c.left(), c.right(), c.time()
		id := m.results[rank]
		if m.closed(left, ends) && m.closed(right, ends) && !m.closed(id, ends) && m.meet(left, right) {
			m.trees[id] = packTree(left, right, max(rank, m.trees[left].time(), m.trees[right].time()))
			m.close(id, ends)
		}
	}
	m.chain(ends, prefixes)
}

// isSymbol reports whether a token is a symbol that words start as.
func (m *Model) isSymbol(token []byte) bool {
	if !m.chars || len(token) < 2 {
		return len(token) == 1
	}
	_, size := utf8.DecodeRune(token)
	return size == len(token)
}

func (m *Model) close(id uint32, ends []uint32) { m.trie.nodes[ends[id]] |= nodeClosed }

func (m *Model) closed(id uint32, ends []uint32) bool {
	return m.trie.nodes[ends[id]]&nodeClosed != 0
}

// candidates returns all merges, those of the shortest results first.
func (m *Model) candidates() []tree {
	var starts []int
	for _, slot := range m.pairs.slots {
		if slot != 0 {
			size := int(m.tails[m.results[slot.time()]].size)
			if size+1 >= len(starts) {
				starts = append(starts, make([]int, size+2-len(starts))...)
			}
			starts[size+1]++
		}
	}
	if len(starts) == 0 {
		return nil
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	list := make([]tree, starts[len(starts)-1])
	for _, slot := range m.pairs.slots {
		if slot != 0 {
			at := &starts[m.tails[m.results[slot.time()]].size]
			list[*at] = slot
			*at++
		}
	}
	return list
}

// chain links each token to the longest closed token that it starts with.
func (m *Model) chain(ends, prefixes []uint32) {
	for id := range prefixes {
		shorter := prefixes[id]
		for shorter != 0 && !m.closed(shorter-1, ends) {
			shorter = prefixes[shorter-1]
		}
		m.tails[id].shorter = shorter
	}
}
