package bpe

// Model encodes words. It never changes after New, so it may be shared.
type Model struct {
	trie  trie
	pairs pairTable
	// results is the token that each merge makes, by time.
	results  []uint32
	edges    []edge
	touching touching
	tails    []tail
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
	list, err := m.merges(&spec, ends)
	if err != nil {
		return nil, err
	}
	m.link(m.derive(&spec, list), ends, prefixes)
	m.trie.findRuns()
	m.keep(list)
	return m, nil
}

// keep prepares for encoding by the rule itself. That needs what each merge
// makes, and it may start with symbols that no text spells: bytes fallen back to
// and the unknown token. Where these merge, all merges are needed; to the search
// the added ones make no difference, since they never come first.
func (m *Model) keep(list []merge) {
	special := make(map[uint32]bool, len(m.byteTokens)+1)
	if m.unk >= 0 {
		special[uint32(m.unk)] = true
	}
	allBytes := true
	if m.byteFallback {
		for _, id := range m.byteTokens {
			if id >= 0 {
				special[uint32(id)] = true
			} else {
				allBytes = false
			}
		}
	}
	merging := false
	last := uint32(0)
	for i := range list {
		merging = merging || special[list[i].left] || special[list[i].right]
		last = max(last, list[i].time)
	}
	m.results = make([]uint32, last+1)
	for i := range list {
		m.results[list[i].time] = list[i].id
	}
	if merging {
		m.pairs = newPairTable(len(list))
		for _, c := range list {
			m.pairs.set(c.left, c.right, c.time)
		}
	}
	m.plainBytes = m.byteFallback && allBytes && !merging
}
