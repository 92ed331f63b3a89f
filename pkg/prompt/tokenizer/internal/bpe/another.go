package bpe

// patient is how often a search may be stuck, beyond twice per token, before
// another takes over that bears it better.
const patient = 64

// appendCareful is the search for words where Append is stuck again and again. It
// tries the tokens that may follow another one in another order: that one again
// if it is there again, then the longest first. In a long run of one byte the
// encoding is mostly one token again and again, and the longer ones that the run
// also holds lead nowhere, each after many steps. What it learns about neighbours
// it remembers. Whatever the order, each position is reached by one sequence only.
func (m *Model) appendCareful(dst []uint32, word string, s *Scratch) []uint32 {
	start, first, pos := len(dst), len(dst), 0
	next, size := m.trie.longest(word)
	for pos < len(word) {
		switch {
		case size == 0:
			if size = m.fallback(word[pos:]); size == 0 {
				return m.follow(dst[:start], word, s)
			}
			for _, b := range []byte(word[pos : pos+size]) {
				dst = append(dst, uint32(m.byteTokens[b]))
			}
			first = len(dst)
			pos += size
			next, size = m.trie.longest(word[pos:])
			continue
		case len(dst) == first || !m.touching.may(word, pos) || m.valid(dst[len(dst)-1], next):
		default:
			for {
				var ok bool
				if next, ok = m.another(word[pos:], dst[first:], next, s); ok {
					break
				}
				if len(dst) == first {
					return m.follow(dst[:start], word, s) // not reached: some way exists
				}
				next = dst[len(dst)-1]
				dst = dst[:len(dst)-1]
				pos -= int(m.tails[next].size)
			}
			size = int(m.tails[next].size)
		}
		dst = append(dst, next)
		pos += size
		next, size = m.first(word, pos, next)
	}
	return dst
}

// first returns the first token to try at a place in word, after another one.
func (m *Model) first(word string, pos int, left uint32) (next uint32, size int) {
	if pos == len(word) {
		return 0, 0
	}
	next, size = m.trie.longestOfRun(word[pos:])
	if last := int(m.tails[left].size); size > last && word[pos+last-1] == word[pos-1] && word[pos:pos+last] == word[pos-last:pos] {
		return left, last
	}
	return next, size
}

// another returns the token to try at the start of text when tried is out, after
// the tokens so far. It is valid there.
func (m *Model) another(text string, before []uint32, tried uint32, s *Scratch) (next uint32, ok bool) {
	from := m.tails[tried].shorter
	if len(before) == 0 {
		return from - 1, from != 0
	}
	left := before[len(before)-1]
	if tried == left {
		longest, _ := m.trie.longestOfRun(text)
		from = longest + 1
	}
	if from == left+1 { // already tried
		from = m.tails[left].shorter
	}
	if from == 0 {
		return 0, false
	}
	next = s.choices.get(m, left, from-1)
	return next, next != noChoice
}

// choose returns the first valid right neighbour of a token among another token
// and the shorter ones that this starts with, except the token itself.
func (m *Model) choose(left, from uint32) uint32 {
	for {
		if from != left && m.valid(left, from) {
			return from
		}
		shorter := m.tails[from].shorter
		if shorter == 0 {
			return noChoice
		}
		from = shorter - 1
	}
}
