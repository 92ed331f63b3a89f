package bpe

// touching knows which characters stand side by side inside some closed token.
// Where two that never do meet, nothing merges across, whatever the tokens are:
// most boundaries in a text are such. Characters share classes, so only "never"
// is certain.
type touching struct {
	chars []uint64 // bits by class of the left character, then of the right one
	// bytes has what classes cannot tell, as bits by the bytes on both sides: a
	// boundary inside a character, or a token that has too little of one.
	bytes []uint64
}

const (
	classBits = 9
	// ascii is how many characters have a class of their own.
	ascii = 128
)

func newTouching() touching {
	return touching{chars: make([]uint64, 1<<(2*classBits)/64), bytes: make([]uint64, 256*256/64)}
}

// add notes the neighbours at a place inside a token.
func (t *touching) add(token []byte, pos int) {
	from := max(pos-2, 0) // no further than a class looks
	text := string(token[from:min(pos+4, len(token))])
	pos -= from
	if at, ok := classesAt(text, pos); ok {
		t.chars[at/64] |= 1 << (at % 64)
		return
	}
	at := bytesAt(text, pos)
	t.bytes[at/64] |= 1 << (at % 64)
}

// may reports whether what is before and after a place inside text can be
// neighbours in a token.
func (t *touching) may(text string, pos int) bool {
	if at := bytesAt(text, pos); t.bytes[at/64]>>(at%64)&1 != 0 {
		return true
	}
	at, ok := classesAt(text, pos)
	return ok && t.chars[at/64]>>(at%64)&1 != 0
}

func bytesAt(text string, pos int) uint32 {
	return uint32(text[pos-1])<<8 | uint32(text[pos])
}

// classesAt returns the classes of the characters on both sides of a place. It
// looks only at what is part of these, so a token and a text that it is part of
// get the same, or the token has too little of a character and gets none.
func classesAt(text string, pos int) (at uint32, ok bool) {
	left, right := uint32(text[pos-1]), uint32(text[pos])
	if left >= ascii {
		if pos < 2 {
			return 0, false
		}
		left = classOf(text[pos-2], text[pos-1])
	}
	if right >= ascii {
		if right < 0xC0 {
			return 0, false // inside a character
		}
		last := pos + 1
		if right >= 0xE0 {
			last++
		}
		if right >= 0xF0 {
			last++
		}
		if last >= len(text) {
			return 0, false
		}
		right = classOf(text[last-1], text[last])
	}
	return left<<classBits | right, true
}

// classOf is the class of a character by its last two bytes, from ascii up.
func classOf(a, b byte) uint32 {
	hash := (uint32(a)<<6 ^ uint32(b)) * 0x9E3779B1 >> 16
	return ascii + hash*(1<<classBits-ascii)>>16
}
