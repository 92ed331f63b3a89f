package bpe

// touching knows which symbols stand side by side inside some closed token.
// Where two that never do meet, nothing merges across, whatever the tokens are:
// most boundaries between words of a long text are such. Characters share
// classes, so only "never" is certain.
type touching struct {
	chars bool
	pairs []uint64 // bits by class of the left symbol, then of the right one
}

const (
	classBits = 9
	// ascii is how many characters have a class of their own.
	ascii = 128
)

func newTouching(chars bool) touching {
	return touching{chars: chars, pairs: make([]uint64, 1<<(2*classBits)/64)}
}

// add notes the neighbours at a place inside a token.
func (t *touching) add(token []byte, pos int) {
	from := max(pos-2, 0) // no further than a class looks
	at := t.at(string(token[from:min(pos+4, len(token))]), pos-from)
	t.pairs[at/64] |= 1 << (at % 64)
}

// may reports whether the symbols before and after a place inside text can be
// neighbours in a token.
func (t *touching) may(text string, pos int) bool {
	at := t.at(text, pos)
	return t.pairs[at/64]>>(at%64)&1 != 0
}

func (t *touching) at(text string, pos int) uint32 {
	return t.before(text, pos)<<classBits | t.after(text, pos)
}

// before is the class of the symbol that ends at pos.
func (t *touching) before(text string, pos int) uint32 {
	b := text[pos-1]
	if !t.chars || b < ascii || pos < 2 {
		return uint32(b)
	}
	return classOf(text[pos-2], b)
}

// after is the class of the symbol that starts at pos.
func (t *touching) after(text string, pos int) uint32 {
	b := text[pos]
	if !t.chars || b < ascii {
		return uint32(b)
	}
	last := pos + 1
	if b >= 0xE0 {
		last++
	}
	if b >= 0xF0 {
		last++
	}
	if last >= len(text) {
		return uint32(b)
	}
	return classOf(text[last-1], text[last])
}

// classOf is the class of a character by its last two bytes, from ascii up.
func classOf(a, b byte) uint32 {
	hash := (uint32(a)<<6 ^ uint32(b)) * 0x9E3779B1 >> 16
	return ascii + hash*(1<<classBits-ascii)>>16
}
