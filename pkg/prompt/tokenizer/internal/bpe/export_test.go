package bpe

// Valid is valid, for tests.
func (m *Model) Valid(x, y uint32) bool { return m.valid(x, y) }

// Merge is follow, for tests: the rule followed with a queue.
func (m *Model) Merge(dst []uint32, word string, s *Scratch) []uint32 { return m.follow(dst, word, s) }

// Closed reports whether a token is closed.
func (m *Model) Closed(token string) bool {
	n := m.trie.nodes[0]
	for i := range len(token) {
		slot, ok := m.trie.child(n, token[i])
		if !ok {
			return false
		}
		n = m.trie.nodes[slot]
	}
	return n&nodeClosed != 0
}

// Followed reports whether a word was ever encoded by following the rule.
func (s *Scratch) Followed() bool { return s.symbols != nil }

// CarefulAppend is appendCareful, for tests.
func (m *Model) CarefulAppend(dst []uint32, word string, s *Scratch) []uint32 {
	return m.appendCareful(dst, word, s)
}

// Careful reports whether a word was ever encoded by the careful search.
func (s *Scratch) Careful() bool { return s.choices.of != nil }
