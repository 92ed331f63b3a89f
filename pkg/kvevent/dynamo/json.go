package dynamo

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// maxDepth is how deep JSON may nest: what Dynamo's own parser allows.
const maxDepth = 128

var (
	errJSON  = errors.New("malformed JSON")
	errDepth = errors.New("JSON nests too deeply")
)

// decodeJSON decodes a message of the JetStream mode: one bare event as JSON,
// without an envelope (dynamo.md 1.8). It is rewritten as msgpack first, so that
// the same code reads both and the same rules hold.
func (d *Decoder) decodeJSON(msg []byte, scope Scope, apply func(*kvevent.Event)) (Envelope, error) {
	d.envelope = Envelope{Topic: TopicKVEvents}
	var rest []byte
	var err error
	if d.payload, rest, err = jsonValue(d.payload[:0], msg, maxDepth); err != nil {
		return d.envelope, err
	}
	if len(jsonSpace(rest)) > 0 {
		return d.envelope, errLeftovers
	}
	if _, err = d.readRouterEvent(d.payload); err == nil {
		d.envelope.PublisherID = d.event.WorkerID
		d.emit(scope, apply)
	} else {
		d.stats.BadEvents++
		d.lastSkip = err
	}
	return d.envelope, nil
}

// jsonValue appends the JSON value that src starts with to dst, as msgpack.
func jsonValue(dst, src []byte, depth int) (out, rest []byte, err error) {
	src = jsonSpace(src)
	if len(src) == 0 {
		return dst, nil, msgpack.ErrShort
	}
	switch c := src[0]; {
	case c == '{' || c == '[':
		if depth == 0 {
			return dst, nil, errDepth
		}
		return jsonParts(dst, src, depth-1)
	case c == '"':
		return jsonString(dst, src)
	case c == '-' || '0' <= c && c <= '9':
		return jsonNumber(dst, src)
	}
	return jsonWord(dst, src)
}

// jsonWord appends null, true or false.
func jsonWord(dst, src []byte) (out, rest []byte, err error) {
	for _, w := range [...]struct {
		text string
		code byte
	}{{"null", 0xc0}, {"false", 0xc2}, {"true", 0xc3}} {
		n := min(len(w.text), len(src))
		switch {
		case string(src[:n]) != w.text[:n]:
		case n < len(w.text):
			return dst, nil, msgpack.ErrShort
		default:
			return append(dst, w.code), src[n:], nil
		}
	}
	return dst, nil, errJSON
}

// jsonParts appends an object or an array. Its length is known at the end, so its
// head takes the form with room for any.
func jsonParts(dst, src []byte, depth int) (out, rest []byte, err error) {
	object := src[0] == '{'
	head, end, tag := len(dst), byte(']'), byte(0xdd)
	if object {
		end, tag = '}', 0xdf
	}
	dst = append(dst, tag, 0, 0, 0, 0)
	n := uint32(0)
	src = jsonSpace(src[1:])
	for {
		if len(src) == 0 {
			return dst, nil, msgpack.ErrShort
		}
		if src[0] == end && n == 0 {
			return dst, src[1:], nil
		}
		if object {
			if dst, src, err = jsonKey(dst, src); err != nil {
				return dst, nil, err
			}
		}
		if dst, src, err = jsonValue(dst, src, depth); err != nil {
			return dst, nil, err
		}
		n++
		if src = jsonSpace(src); len(src) == 0 {
			return dst, nil, msgpack.ErrShort
		}
		switch src[0] {
		case end:
			binary.BigEndian.PutUint32(dst[head+1:], n)
			return dst, src[1:], nil
		case ',':
			src = jsonSpace(src[1:])
		default:
			return dst, nil, errJSON
		}
	}
}

// jsonKey appends a key of an object and passes its colon.
func jsonKey(dst, src []byte) (out, rest []byte, err error) {
	if src[0] != '"' {
		return dst, nil, errJSON
	}
	if dst, src, err = jsonString(dst, src); err != nil {
		return dst, nil, err
	}
	src = jsonSpace(src)
	switch {
	case len(src) == 0:
		return dst, nil, msgpack.ErrShort
	case src[0] != ':':
		return dst, nil, errJSON
	}
	return dst, src[1:], nil
}

// jsonString appends a string.
func jsonString(dst, src []byte) (out, rest []byte, err error) {
	for i := 1; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			return msgp.AppendStringFromBytes(dst, src[1:i]), src[i+1:], nil
		case c == '\\':
			return jsonEscaped(dst, src, i)
		case c < ' ':
			return dst, nil, errJSON
		}
	}
	return dst, nil, msgpack.ErrShort
}

// jsonEscaped appends a string whose first escape is at i.
func jsonEscaped(dst, src []byte, i int) (out, rest []byte, err error) {
	head := len(dst)
	dst = append(dst, 0xdb, 0, 0, 0, 0)
	dst = append(dst, src[1:i]...)
	for i < len(src) {
		c := src[i]
		switch {
		case c == '"':
			binary.BigEndian.PutUint32(dst[head+1:], uint32(len(dst)-head-5))
			return dst, src[i+1:], nil
		case c < ' ':
			return dst, nil, errJSON
		case c != '\\':
			dst = append(dst, c)
			i++
			continue
		}
		var n int
		if dst, n, err = jsonEscape(dst, src[i:]); err != nil {
			return dst, nil, err
		}
		i += n
	}
	return dst, nil, msgpack.ErrShort
}

// jsonEscape appends what an escape stands for, and returns the bytes it takes.
func jsonEscape(dst, src []byte) (out []byte, n int, err error) {
	if len(src) < 2 {
		return dst, 0, msgpack.ErrShort
	}
	switch c := src[1]; c {
	case '"', '\\', '/':
		return append(dst, c), 2, nil
	case 'b':
		return append(dst, '\b'), 2, nil
	case 'f':
		return append(dst, '\f'), 2, nil
	case 'n':
		return append(dst, '\n'), 2, nil
	case 'r':
		return append(dst, '\r'), 2, nil
	case 't':
		return append(dst, '\t'), 2, nil
	case 'u':
	default:
		return dst, 0, errJSON
	}
	r, err := jsonHex(src[2:])
	if err != nil {
		return dst, 0, err
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(dst, r), 6, nil
	}
	const second = `\u`
	switch n := min(len(src)-6, len(second)); {
	case string(src[6:6+n]) != second[:n]:
	case n < len(second):
		return dst, 0, msgpack.ErrShort
	default:
		low, err := jsonHex(src[8:])
		if err != nil {
			return dst, 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return utf8.AppendRune(dst, pair), 12, nil
		}
	}
	return dst, 0, errJSON // half a pair
}

// jsonHex reads the four digits of an escape.
func jsonHex(src []byte) (rune, error) {
	if len(src) < 4 {
		return 0, msgpack.ErrShort
	}
	r := rune(0)
	for _, c := range src[:4] {
		digit := unhex(c)
		if digit > 15 {
			return 0, errJSON
		}
		r = r<<4 | rune(digit)
	}
	return r, nil
}

// jsonNumber appends a number: whole ones that fit 64 bits exactly, others as a
// float, which is no good where an integer belongs.
func jsonNumber(dst, src []byte) (out, rest []byte, err error) {
	text, whole, err := jsonDigits(src)
	if err != nil {
		return dst, nil, err
	}
	rest = src[len(text):]
	negative := text[0] == '-'
	digits := text
	if negative {
		digits = text[1:]
	}
	if u, fits := parseUint(digits); whole && fits {
		switch {
		case !negative:
			return msgp.AppendUint64(dst, u), rest, nil
		case u > 0 && u <= 1<<63: // minus nothing is a float
			return msgp.AppendInt64(dst, -int64(u)), rest, nil
		}
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !math.IsInf(f, 0) {
		return dst, nil, errJSON
	}
	return msgp.AppendFloat64(dst, f), rest, nil
}

// jsonDigits returns the text of the number that src starts with, and whether it
// has neither a fraction nor an exponent.
func jsonDigits(src []byte) (text []byte, whole bool, err error) {
	i := 0
	if src[0] == '-' {
		i = 1
	}
	first := i
	if i, err = jsonRun(src, i); err != nil {
		return nil, false, err
	}
	if src[first] == '0' && i > first+1 {
		return nil, false, errJSON
	}
	whole = true
	if i < len(src) && src[i] == '.' {
		whole = false
		if i, err = jsonRun(src, i+1); err != nil {
			return nil, false, err
		}
	}
	if i < len(src) && src[i]|0x20 == 'e' {
		whole = false
		if i++; i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		if i, err = jsonRun(src, i); err != nil {
			return nil, false, err
		}
	}
	return src[:i], whole, nil
}

// jsonRun passes one digit or more.
func jsonRun(src []byte, i int) (int, error) {
	first := i
	for i < len(src) && '0' <= src[i] && src[i] <= '9' {
		i++
	}
	switch {
	case i > first:
		return i, nil
	case i >= len(src):
		return 0, msgpack.ErrShort
	}
	return 0, errJSON
}

// parseUint reads decimal digits; fits is false above 64 bits.
func parseUint(digits []byte) (u uint64, fits bool) {
	for _, c := range digits {
		d := uint64(c - '0')
		if u > (math.MaxUint64-d)/10 {
			return 0, false
		}
		u = 10*u + d
	}
	return u, true
}

// jsonSpace passes white space.
func jsonSpace(src []byte) []byte {
	for len(src) > 0 && (src[0] == ' ' || src[0] == '\n' || src[0] == '\r' || src[0] == '\t') {
		src = src[1:]
	}
	return src
}
