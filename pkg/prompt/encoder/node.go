package encoder

import "github.com/warmpath/warmpath/pkg/block"

// node is what the memo knows at a cut of a prompt: everything that is needed to
// go on from there without looking at what came before.
type node struct {
	key    key
	tokens int           // tokens from the start of the prompt to the cut
	chains []block.Chain // blocks completed since the cut before
	tail   []uint32      // tokens of the unfinished block
	hints  hints         // how the children known so far end
}

// load appends the chains of the node k to chains, and its tail to tail. It
// marks the node as used. ok is false when there is no such node; nothing is
// appended then.
func (s *shard) load(k key, chains []block.Chain, tail []uint32) (n node, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, _ := s.find(k)
	if head == noCell {
		return node{}, false
	}
	s.touchNode(head)
	c := s.cells.at(head)
	n = node{key: k, tokens: int(uint32(c[3])), hints: hints(c[5])}
	p := s.cells.payload(head)
	for range uint32(c[4]) {
		chains = append(chains, block.Chain(p.read()))
	}
	for left := s.tailLen(n.tokens); left > 0; left -= 2 {
		w := p.read()
		tail = append(tail, uint32(w))
		if left > 1 {
			tail = append(tail, uint32(w>>halfBits))
		}
	}
	n.chains, n.tail = chains, tail
	return n, true
}

// tailLen is how many of so many tokens lie behind the last full block.
func (s *shard) tailLen(tokens int) int { return tokens - s.layout.Blocks(tokens)*s.layout.Size }

// fits reports whether a node with so many chains and tail tokens may be stored.
// One that takes a large part of the shard is not worth the others it would
// drive out.
func (s *shard) fits(chains, tail int) bool {
	return cellsFor(chains+(tail+1)/2) <= int(s.cells.limit)/4
}

// store adds a node that fits, or marks the one there is as used and adds n's
// hints to it.
func (s *shard) store(n *node) {
	need := uint32(cellsFor(len(n.chains) + (len(n.tail)+1)/2))
	s.mu.Lock()
	defer s.mu.Unlock()
	if head, _ := s.find(n.key); head != noCell {
		s.touchNode(head)
		c := s.cells.at(head)
		c[5] = uint64(hints(c[5]).union(n.hints))
		return
	}
	for s.cells.left() < need || s.nodes >= s.limit {
		s.evict()
	}
	s.nodes++
	head := s.cells.take()
	*s.cells.at(head) = cell{0: n.key.Lo, 1: n.key.Hi, 3: uint64(uint32(n.tokens)), 4: uint64(uint32(len(n.chains))), 5: uint64(n.hints)}
	p := s.cells.payload(head)
	for _, c := range n.chains {
		p.write(uint64(c))
	}
	for t := n.tail; len(t) > 0; t = t[min(2, len(t)):] {
		w := uint64(t[0])
		if len(t) > 1 {
			w |= uint64(t[1]) << halfBits
		}
		p.write(w)
	}
	_, slot := s.find(n.key)
	s.index[slot] = head
	s.link(head)
}

// touch marks a node as used and adds hints to it.
func (s *shard) touch(k key, h hints) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if head, _ := s.find(k); head != noCell {
		s.touchNode(head)
		if h != 0 {
			c := s.cells.at(head)
			c[5] = uint64(hints(c[5]).union(h))
		}
	}
}
