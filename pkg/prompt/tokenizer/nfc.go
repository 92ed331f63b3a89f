package tokenizer

import (
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc composes canonically, as Hugging Face does. The properties of characters
// are those of golang.org/x/text, but its Unicode version is newer (see
// unknownMarks) and it breaks up long runs of combining characters, as
// stream-safe text wants it; so the work is done here.
type nfc struct {
	inert *[1 << 16 / 64]uint64
	pairs map[[2]rune]rune // what two characters compose to
}

func newNFC() step { return nfc{inertTable(), pairTable()} }

// inertTable has a bit for each character below U+10000 that is inert: it stays
// as it is, whatever is before it, and nothing before it changes.
var inertTable = sync.OnceValue(func() *[1 << 16 / 64]uint64 {
	var table [1 << 16 / 64]uint64
	for r := range rune(1 << 16) {
		if isInert(r) {
			table[r/64] |= 1 << (r % 64)
		}
	}
	return &table
})

func isInert(r rune) bool {
	if r < utf8.RuneSelf || unknownMark(r) {
		return true
	}
	var b [utf8.UTFMax]byte
	text := b[:utf8.EncodeRune(b[:], r)]
	return norm.NFC.Properties(text).BoundaryBefore() && norm.NFC.IsNormal(text)
}

func (n nfc) isInert(r rune) bool {
	if r < 1<<16 {
		return n.inert[r/64]>>(r%64)&1 != 0
	}
	return isInert(r)
}

func (n nfc) apply(text string, buf []byte) (string, []byte) {
	done, last := 0, 0 // last: the start of the character before i
	for i := 0; i < len(text); {
		if next, before := n.passInert(text, i); next > i {
			i, last = next, before
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if n.isInert(r) {
			last = i
			i += size
			continue
		}
		// An inert character and all that are not after it: what composes does so
		// in here.
		start, end := last, n.endOfRun(text, i+size)
		if before, _ := utf8.DecodeRuneInString(text[start:]); start < i && unknownMark(before) {
			start = i
		}
		buf = append(buf, text[done:start]...)
		buf = n.appendComposed(buf, text[start:end])
		done, last, i = end, end, end
	}
	if done == 0 {
		return text, buf
	}
	buf = append(buf, text[done:]...)
	return view(buf), buf
}

// passInert passes over characters that are seen to be inert at a glance. It
// returns where it stopped and the start of the last character before that.
func (n nfc) passInert(text string, i int) (next, last int) {
	for i < len(text) {
		switch c := text[i]; {
		case c < utf8.RuneSelf:
			for i+8 <= len(text) {
				t := text[i : i+8]
				if t[0]|t[1]|t[2]|t[3]|t[4]|t[5]|t[6]|t[7] >= utf8.RuneSelf {
					break
				}
				i += 8
			}
			for i < len(text) && text[i] < utf8.RuneSelf {
				i++
			}
			last = i - 1
		case c>>4 == 0xE && n.inert[int(c&0xF)<<6|int(text[i+1]&0x3F)] == ^uint64(0):
			// Three bytes, of which the first two name 64 characters.
			last = i
			i += 3
		default:
			return i, last
		}
	}
	return i, last
}

// endOfRun returns the next inert character from i on.
func (n nfc) endOfRun(text string, i int) int {
	for i < len(text) && text[i] >= utf8.RuneSelf {
		r, size := utf8.DecodeRuneInString(text[i:])
		if n.isInert(r) {
			break
		}
		i += size
	}
	return i
}

// appendComposed appends the composed form of a text without unknown marks.
func (n nfc) appendComposed(dst []byte, text string) []byte {
	var few [64]mark
	marks := decompose(few[:0], text)
	order(marks)
	for _, m := range n.compose(marks) {
		dst = utf8.AppendRune(dst, m.r)
	}
	return dst
}

// mark is a character with its canonical combining class.
type mark struct {
	r     rune
	class uint8
}

// The arithmetic of Hangul syllables (Unicode, section 3.12).
const (
	hangulBase = 0xAC00
	leadBase   = 0x1100
	vowelBase  = 0x1161
	tailBase   = 0x11A7
	leads      = 19
	vowels     = 21
	tails      = 28
)

// decompose appends the canonical decomposition of a text, not yet in order.
func decompose(marks []mark, text string) []mark {
	for i, r := range text {
		if s := r - hangulBase; 0 <= s && s < leads*vowels*tails {
			marks = append(marks, mark{leadBase + s/(vowels*tails), 0}, mark{vowelBase + s/tails%vowels, 0})
			if s%tails > 0 {
				marks = append(marks, mark{tailBase + s%tails, 0})
			}
			continue
		}
		p := norm.NFD.PropertiesString(text[i:])
		d := p.Decomposition()
		if d == nil {
			marks = append(marks, mark{r, p.CCC()})
		}
		for len(d) > 0 {
			r, size := utf8.DecodeRune(d)
			marks = append(marks, mark{r, norm.NFD.Properties(d).CCC()})
			d = d[size:]
		}
	}
	return marks
}

// order sorts each run of combining characters by class.
func order(marks []mark) {
	for i := 0; i < len(marks); {
		if marks[i].class == 0 {
			i++
			continue
		}
		end := i
		for end < len(marks) && marks[end].class != 0 {
			end++
		}
		slices.SortStableFunc(marks[i:end], func(a, b mark) int { return int(a.class) - int(b.class) })
		i = end
	}
}

// compose puts characters together, in place: each with the last one of class 0
// that nothing between blocks.
func (n nfc) compose(marks []mark) []mark {
	out := marks[:0]
	starter := -1
	for _, m := range marks {
		if starter >= 0 {
			// What lies between the two is in order: the last of it blocks, or none.
			if last := len(out) - 1; last == starter || out[last].class < m.class {
				if r, ok := n.pair(out[starter].r, m.r); ok {
					out[starter].r = r
					continue
				}
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	return out
}

// pair returns the character that two compose to.
func (n nfc) pair(a, b rune) (rune, bool) {
	if l, v := a-leadBase, b-vowelBase; 0 <= l && l < leads && 0 <= v && v < vowels {
		return hangulBase + (l*vowels+v)*tails, true
	}
	if s, t := a-hangulBase, b-tailBase; 0 <= s && s < leads*vowels*tails && s%tails == 0 && 0 < t && t < tails {
		return a + t, true
	}
	r, ok := n.pairs[[2]rune{a, b}]
	return r, ok
}

// pairTable has all that composes, Hangul aside. A character that composes at
// all does so from its last character and what those before it compose to.
var pairTable = sync.OnceValue(func() map[[2]rune]rune {
	pairs := make(map[[2]rune]rune, 1024)
	for r := range rune(0x30000) { // no character above has parts
		text := string(r)
		d := norm.NFD.PropertiesString(text).Decomposition()
		if len(d) == 0 || hangulBase <= r && r < hangulBase+leads*vowels*tails || !norm.NFC.IsNormalString(text) {
			continue
		}
		last, size := utf8.DecodeLastRune(d)
		first, whole := utf8.DecodeRune(norm.NFC.Bytes(d[:len(d)-size]))
		if whole > 0 {
			pairs[[2]rune{first, last}] = r
		}
	}
	return pairs
})

// unknownMark reports whether a character combines in Go's Unicode version and
// not in Hugging Face's.
func unknownMark(r rune) bool { return r >= unknownMarks[0].first && inAny(unknownMarks, r) }

// unknownMarks are the characters that combine in Unicode 15, which x/text has,
// and not in the version of unicode-normalization-alignments 0.1.12, with which
// tokenizers 0.22 normalizes: newer ones, and a few that became combining later.
// hack/unicode/properties.py finds the
// characters that do.
var unknownMarks = []runeRange{
	{0x07FD, 0x07FD},
	{0x0898, 0x089F},
	{0x08CA, 0x08D3},
	{0x09FE, 0x09FE},
	{0x0C3C, 0x0C3C},
	{0x0D3B, 0x0D3C},
	{0x0EBA, 0x0EBA},
	{0x1715, 0x1715},
	{0x1ABF, 0x1ACE},
	{0x1DF6, 0x1DFA},
	{0xA82C, 0xA82C},
	{0x10D24, 0x10D27},
	{0x10EAB, 0x10EAC},
	{0x10EFD, 0x10EFF},
	{0x10F46, 0x10F50},
	{0x10F82, 0x10F85},
	{0x11070, 0x11070},
	{0x1133B, 0x1133B},
	{0x1145E, 0x1145E},
	{0x11839, 0x1183A},
	{0x11930, 0x11930},
	{0x1193D, 0x1193E},
	{0x11943, 0x11943},
	{0x119E0, 0x119E0},
	{0x11A34, 0x11A34},
	{0x11A47, 0x11A47},
	{0x11A99, 0x11A99},
	{0x11D42, 0x11D42},
	{0x11D44, 0x11D45},
	{0x11D97, 0x11D97},
	{0x11F41, 0x11F42},
	{0x16FF0, 0x16FF1},
	{0x1E08F, 0x1E08F},
	{0x1E130, 0x1E136},
	{0x1E2AE, 0x1E2AE},
	{0x1E2EC, 0x1E2EF},
	{0x1E4EC, 0x1E4EF},
}
