package rewrite

// place is where in a JSON text a valueReader is.
type place uint8

const (
	before    place = iota // the object that holds the name has not begun
	beforeKey              // of that object, or of the one under the further key
	inKey
	beforeColon
	beforeValue
	inName   // the string to replace, after its opening quote
	inString // a value that is another string
	inScalar // one that is a number or a word
	inOther  // one that is a list or an object
	inText   // a string in there
	afterValue
	deaf // the object has ended, or is no JSON: nothing more is of interest
)

// valueReader finds the names in a JSON text, a byte at a time. It remembers where
// it is, and nothing of what it read but a few bytes of a key.
type valueReader struct {
	inner   string // the further key
	at      place
	level   int  // 1 in the object, 2 in the one under the further key
	open    int  // lists and objects around inOther and inText
	escaped bool // the last byte of a string was a backslash
	key     keyReader
}

func (v *valueReader) reset() { *v = valueReader{inner: v.inner} }

// lineEnd is a line's end between two lines of data: white space, which no string
// can hold.
func (v *valueReader) lineEnd() {
	switch v.at {
	case inKey, inName, inString, inText:
		v.at = deaf
	default:
	}
}

func (v *valueReader) step(c byte) {
	switch v.at {
	case inKey:
		if v.inText(c) {
			v.key.add(c)
		} else {
			v.at = beforeColon
		}
	case inName, inString:
		if !v.inText(c) {
			v.at = afterValue
		}
	case inText:
		if !v.inText(c) {
			v.at = inOther
		}
	case inOther:
		v.other(c)
	case inScalar:
		if c == ',' || c == '}' {
			v.after(c)
		}
	case deaf:
	default:
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			v.between(c)
		}
	}
}

// between reads a byte where white space may be.
func (v *valueReader) between(c byte) {
	switch {
	case v.at == before && c == '{':
		v.level, v.at = 1, beforeKey
	case v.at == beforeKey && c == '"':
		v.key, v.at = keyReader{}, inKey
	case v.at == beforeKey && c == '}', v.at == afterValue:
		v.after(c)
	case v.at == beforeColon && c == ':':
		v.at = beforeValue
	case v.at == beforeValue:
		v.begin(c)
	default:
		v.at = deaf
	}
}

// begin reads the first byte of a value.
func (v *valueReader) begin(c byte) {
	switch {
	case c == '"' && v.key.is("model"):
		v.at = inName
	case c == '"':
		v.at = inString
	case c == '{' && v.level == 1 && v.inner != "" && v.key.is(v.inner):
		v.level, v.at = 2, beforeKey
	case c == '{', c == '[':
		v.open, v.at = 1, inOther
	default:
		v.at = inScalar
	}
}

// after reads what ends a value, or the object around it.
func (v *valueReader) after(c byte) {
	switch c {
	case ',':
		v.at = beforeKey
	case '}':
		v.at = afterValue
		if v.level--; v.level == 0 {
			v.at = deaf
		}
	default:
		v.at = deaf
	}
}

// other reads a byte of a list or an object without names.
func (v *valueReader) other(c byte) {
	switch c {
	case '"':
		v.at = inText
	case '{', '[':
		v.open++
	case '}', ']':
		if v.open--; v.open == 0 {
			v.at = afterValue
		}
	}
}

// inText reads a byte of a string and says whether it belongs to it. The closing
// quote does not.
func (v *valueReader) inText(c byte) bool {
	if c == '"' && !v.escaped {
		return false
	}
	v.escaped = c == '\\' && !v.escaped
	return true
}

// keyReader decodes a key as far as it can be one of those that matter.
type keyReader struct {
	text   [12]byte
	n      int // bytes in text; unlike for a key that is none of those
	escape int // in an escape: 1 after the backslash, then one more with each byte
	code   rune
}

const unlike = -1

// is says whether the key that was read is this one.
func (k *keyReader) is(name string) bool {
	return k.n >= 0 && k.escape == 0 && string(k.text[:k.n]) == name
}

func (k *keyReader) add(c byte) {
	switch {
	case k.n == unlike:
	case k.escape == 0 && c == '\\':
		k.escape = 1
	case k.escape == 0:
		k.append(c)
	case k.escape == 1 && c == 'u':
		k.escape, k.code = 2, 0
	case k.escape == 1:
		k.n = unlike // no key that matters has a character with such an escape
	default:
		k.digit(c)
	}
}

// digit reads a digit of an escape.
func (k *keyReader) digit(c byte) {
	k.code <<= 4
	switch {
	case '0' <= c && c <= '9':
		k.code |= rune(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		k.code |= rune(c|0x20-'a') + 10
	default:
		k.n = unlike
		return
	}
	const last = 5
	if k.escape++; k.escape <= last {
		return
	}
	if k.escape = 0; k.code > 'z' {
		k.n = unlike
		return
	}
	k.append(byte(k.code))
}

func (k *keyReader) append(c byte) {
	if k.n == len(k.text) {
		k.n = unlike
		return
	}
	k.text[k.n] = c
	k.n++
}
