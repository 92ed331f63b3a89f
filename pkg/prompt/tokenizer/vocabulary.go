package tokenizer

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// maxID bounds token ids: tables are as long as the highest one. The largest
// vocabularies in use have a quarter of a million.
const maxID = 1<<22 - 1

// sparse reports whether a vocabulary's ids are so far apart that tables by id
// would be out of proportion to it.
func sparse(highest uint32, count int) bool { return int(highest) > 1<<16+4*count }

// vocabulary is the model's own tokens while a file is loaded.
type vocabulary struct {
	ids   map[string]uint32
	texts []string // by id; a hole is an empty text that ids does not have
	count int
}

// readVocabulary reads the object that maps texts to ids.
func readVocabulary(data []byte, n *node) (*vocabulary, *LoadError) {
	p := &parser{data: data[:n.end], pos: n.start, part: n.path}
	type entry struct{ end, id uint32 }
	// A token takes about a dozen bytes of JSON and half a dozen of text.
	arena := make([]byte, 0, (n.end-n.start)/2)
	entries := make([]entry, 0, (n.end-n.start)/16)
	highest := uint32(0)
	p.take('{')
	for first := true; p.more(first, '}'); first = false {
		arena = p.appendText(arena, p.str())
		p.take(':')
		p.peek()
		at := p.pos
		id := p.id()
		if id > maxID {
			p.fail(at, "the token id %d is above the limit of %d", id, maxID)
		}
		if p.err != nil {
			return nil, p.err
		}
		highest = max(highest, id)
		entries = append(entries, entry{uint32(len(arena)), id})
	}
	if p.err != nil {
		return nil, p.err
	}
	if len(entries) == 0 {
		p.fail(n.start, "the vocabulary is empty")
		return nil, p.err
	}
	if sparse(highest, len(entries)) {
		p.fail(n.start, "the token id %d is too high for %d tokens", highest, len(entries))
		return nil, p.err
	}
	v := &vocabulary{ids: make(map[string]uint32, len(entries)), texts: make([]string, highest+1), count: len(entries)}
	text, start := string(arena), uint32(0)
	seen := make([]uint64, highest/64+1)
	for _, e := range entries {
		if seen[e.id/64]>>(e.id%64)&1 != 0 {
			p.fail(n.start, "two tokens have the id %d", e.id)
			return nil, p.err
		}
		seen[e.id/64] |= 1 << (e.id % 64)
		v.texts[e.id] = text[start:e.end]
		v.ids[text[start:e.end]] = e.id
		start = e.end
	}
	if len(v.ids) != len(entries) {
		p.fail(n.start, "a token is given twice")
		return nil, p.err
	}
	return v, nil
}

// tokens returns the bytes of each token, by id. Over a byte-level alphabet, a
// token with other characters than the alphabet's has none: no text leads to it.
func (v *vocabulary) tokens(byteLevel bool) [][]byte {
	size := 0
	for _, text := range v.texts {
		size += len(text)
	}
	arena := make([]byte, 0, size)
	list := make([][]byte, len(v.texts))
	for id, text := range v.texts {
		if !v.has(uint32(id)) {
			continue
		}
		start := len(arena)
		if !byteLevel {
			arena = append(arena, text...)
		} else {
			var ok bool
			if arena, ok = appendBytes(arena, text); !ok {
				arena = arena[:start]
				continue
			}
		}
		list[id] = arena[start:len(arena):len(arena)]
	}
	return list
}

func (v *vocabulary) has(id uint32) bool {
	if int(id) >= len(v.texts) {
		return false
	}
	if v.texts[id] != "" {
		return true
	}
	empty, ok := v.ids[""]
	return ok && empty == id
}

// readMerges reads the list of merges, lowest rank first: pairs of texts, or, in
// older files, lines with a blank between the two.
func readMerges(data []byte, n *node, v *vocabulary, tokens [][]byte) ([][2]uint32, *LoadError) {
	p := &parser{data: data[:n.end], pos: n.start, part: n.path}
	m := mergeReader{parser: p, ids: v.ids}
	merges := make([][2]uint32, 0, (n.end-n.start)/24)
	lines, pairs := false, false
	p.take('[')
	for first := true; p.more(first, ']'); first = false {
		p.peek()
		at := p.pos
		var pair [2]uint32
		ok := true
		if p.peek() == kindList {
			pairs = true
			pair = m.pair()
		} else {
			lines = true
			pair, ok = m.line()
		}
		if lines && pairs {
			p.fail(at, "some merges are pairs and some are lines")
		}
		if p.err != nil {
			return nil, p.err
		}
		if ok && m.reachable(pair, v, tokens, at) {
			merges = append(merges, pair)
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return merges, nil
}

type mergeReader struct {
	*parser
	ids map[string]uint32
	buf []byte
}

// pair consumes ["a","b"].
func (m *mergeReader) pair() [2]uint32 {
	m.take('[')
	left := m.half()
	m.take(',')
	right := m.half()
	m.take(']')
	return [2]uint32{left, right}
}

func (m *mergeReader) half() uint32 {
	m.peek()
	at := m.pos
	text := m.str()
	if !text.escaped {
		return m.lookUp(text.raw, at)
	}
	m.buf = m.appendText(m.buf[:0], text)
	return m.lookUp(m.buf, at)
}

// line consumes "a b". Reports false for the line that names the file's version.
func (m *mergeReader) line() ([2]uint32, bool) {
	m.peek()
	at := m.pos
	m.buf = m.appendText(m.buf[:0], m.str())
	if bytes.HasPrefix(m.buf, []byte("#version")) {
		return [2]uint32{}, false
	}
	left, right, ok := bytes.Cut(m.buf, []byte{' '})
	if !ok || bytes.IndexByte(right, ' ') >= 0 {
		m.fail(at, "a merge is not two tokens with a blank between them")
		return [2]uint32{}, false
	}
	return [2]uint32{m.lookUp(left, at), m.lookUp(right, at)}, true
}

func (m *mergeReader) lookUp(text []byte, at int) uint32 {
	id, ok := m.ids[string(text)]
	if !ok {
		m.fail(at, "a merge names a token that is not in the vocabulary")
	}
	return id
}

// reachable reports whether text can lead to a merge: both its tokens have
// bytes. What the merge makes must be a token all the same.
func (m *mergeReader) reachable(pair [2]uint32, v *vocabulary, tokens [][]byte, at int) bool {
	if len(tokens[pair[0]]) > 0 && len(tokens[pair[1]]) > 0 {
		return true // the model checks the result
	}
	if _, ok := v.ids[v.texts[pair[0]]+v.texts[pair[1]]]; !ok {
		m.fail(at, "a merge makes a token that is not in the vocabulary")
	}
	return false
}

// compact returns the vocabulary in the form that is kept.
func (v *vocabulary) compact() keptVocabulary {
	size := 0
	for _, text := range v.texts {
		size += len(text)
	}
	var k keptVocabulary
	var b strings.Builder
	b.Grow(size)
	k.ends = make([]uint32, len(v.texts))
	for id, text := range v.texts {
		b.WriteString(text)
		k.ends[id] = uint32(b.Len())
	}
	k.text = b.String()
	return k
}

// keptVocabulary is the texts of the model's tokens, to look names up in. That
// happens while things are set up, so it is small rather than fast.
type keptVocabulary struct {
	text string
	ends []uint32 // by id
}

// id returns the id of a token. An empty text has none.
func (k *keptVocabulary) id(text string) (uint32, bool) {
	start := uint32(0)
	for id, end := range k.ends {
		if text != "" && k.text[start:end] == text {
			return uint32(id), true
		}
		start = end
	}
	return 0, false
}

// alphabet is the character that stands for each byte in byte-level
// vocabularies: itself when it is printable Latin-1, else one from U+0100 on, in
// order (GPT-2's bytes_to_unicode).
var alphabet = func() (a [256]rune) {
	next := rune(0x100)
	for b := range a {
		switch {
		case '!' <= b && b <= '~', 0xA1 <= b && b <= 0xAC, 0xAE <= b:
			a[b] = rune(b)
		default:
			a[b] = next
			next++
		}
	}
	return a
}()

// byteOf undoes alphabet. All its characters are below U+0144; the others have -1.
var byteOf = func() (table [0x144]int16) {
	for i := range table {
		table[i] = -1
	}
	for b, r := range alphabet {
		table[r] = int16(b)
	}
	return table
}()

// appendBytes appends the bytes that a text over the byte-level alphabet stands
// for. Reports false when it has other characters; dst is then of no use.
func appendBytes(dst []byte, text string) ([]byte, bool) {
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[i:])
		}
		if int(r) >= len(byteOf) || byteOf[r] < 0 {
			return dst, false
		}
		dst = append(dst, byte(byteOf[r]))
		i += size
	}
	return dst, true
}
