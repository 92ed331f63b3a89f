package bpe

// Model encodes words. It never changes after New, so it may be shared.
type Model struct {
	trie  trie
	pairs pairTable
	// results is the token that each merge makes, by time.
	results []uint32
	trees   []tree
	tails   []tail
	// symbols is the id of each single byte, -1 for none. With chars it is used
	// only for ASCII.
	symbols    [256]int32
	byteTokens [256]int32
	unk        int32

	chars        bool
	byteFallback bool
	fuseUnk      bool
	ignoreMerges bool
	// plainBytes says that the search may go on after a character that falls
	// back to bytes.
	plainBytes bool
}

// New returns the model of a specification, or says what is wrong with it. It
// keeps nothing of spec.
func New(spec Spec) (*Model, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	m := &Model{
		byteTokens:   spec.ByteTokens,
		unk:          spec.Unk,
		chars:        spec.Chars,
		byteFallback: spec.byteFallback(),
		fuseUnk:      spec.FuseUnk,
		ignoreMerges: spec.IgnoreMerges,
	}
	var ends, prefixes []uint32
	var err error
	if m.trie, ends, prefixes, err = buildTrie(spec.Tokens); err != nil {
		return nil, err
	}
	for b := range m.symbols {
		m.symbols[b] = -1
		if id, ok := m.trie.find(string([]byte{byte(b)})); ok {
			m.symbols[b] = int32(id)
		}
	}
	if err := m.addMerges(&spec, ends); err != nil {
		return nil, err
	}
	m.derive(&spec, ends, prefixes)
	m.plainBytes = m.byteFallback && m.bytesNeverMerge()
	return m, nil
}

// bytesNeverMerge reports whether all bytes have a token and none of these is
// part of a merge.
func (m *Model) bytesNeverMerge() bool {
	tokens := make(map[uint32]bool, len(m.byteTokens))
	for _, id := range m.byteTokens {
		if id < 0 {
			return false
		}
		tokens[uint32(id)] = true
	}
	for _, slot := range m.pairs.slots {
		if slot != 0 && (tokens[slot.left()] || tokens[slot.right()]) {
			return false
		}
	}
	return true
}
