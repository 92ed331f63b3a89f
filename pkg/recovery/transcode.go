package recovery

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// maxDepth bounds how deep values lie inside each other. An answer needs ten.
const maxDepth = 32

var errNotJSON = errors.New("not valid JSON")

// transcode appends the msgpack form of a JSON value, so that there is one
// decoder for both. Integers stay exact and must fit into 64 bits, signed or
// not; a number with a fraction or an exponent becomes a float, which no field
// of an event takes for an integer.
func transcode(dst, src []byte) ([]byte, error) {
	if !json.Valid(src) {
		return nil, errNotJSON
	}
	t := transcoder{src: src, dst: dst}
	if err := t.value(0); err != nil {
		return nil, err
	}
	return t.dst, nil
}

// transcoder walks JSON that is known to be valid.
type transcoder struct {
	src, dst []byte
}

// space skips white space and the given punctuation.
func (t *transcoder) space(also byte) {
	for len(t.src) > 0 {
		switch c := t.src[0]; c {
		case ' ', '\t', '\r', '\n', also:
			t.src = t.src[1:]
		default:
			return
		}
	}
}

func (t *transcoder) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("values inside each other: %w (%d)", ErrTooLarge, maxDepth)
	}
	t.space(' ')
	switch t.src[0] {
	case '{':
		return t.list('}', depth, 0xdf)
	case '[':
		return t.list(']', depth, 0xdd)
	case '"':
		return t.text()
	case 't':
		t.dst, t.src = msgp.AppendBool(t.dst, true), t.src[len("true"):]
	case 'f':
		t.dst, t.src = msgp.AppendBool(t.dst, false), t.src[len("false"):]
	case 'n':
		t.dst, t.src = msgp.AppendNil(t.dst), t.src[len("null"):]
	default:
		return t.number()
	}
	return nil
}

// list converts an object or an array. How many elements there are is known only
// at its end, so the head is one of fixed size, whose kind is the format's byte
// for a map or an array with a length of 32 bits.
func (t *transcoder) list(end byte, depth int, kind byte) error {
	head := len(t.dst)
	t.dst = append(t.dst, kind, 0, 0, 0, 0)
	t.src = t.src[1:]
	n := uint32(0)
	for t.space(','); t.src[0] != end; t.space(',') {
		if end == '}' {
			if err := t.text(); err != nil {
				return err
			}
			t.space(':')
		}
		if err := t.value(depth + 1); err != nil {
			return err
		}
		n++
	}
	t.src = t.src[1:]
	binary.BigEndian.PutUint32(t.dst[head+1:], n)
	return nil
}

func (t *transcoder) text() error {
	end := 1
	for t.src[end] != '"' {
		if t.src[end] == '\\' {
			end++
		}
		end++
	}
	literal := t.src[:end+1]
	t.src = t.src[end+1:]
	if inner := literal[1:end]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		t.dst = msgp.AppendStringFromBytes(t.dst, inner)
		return nil
	}
	var s string
	if err := json.Unmarshal(literal, &s); err != nil {
		return err
	}
	t.dst = msgp.AppendString(t.dst, s)
	return nil
}

func (t *transcoder) number() error {
	end, fraction := 0, false
scan:
	for ; end < len(t.src); end++ {
		switch c := t.src[end]; {
		case c == '.' || c == 'e' || c == 'E':
			fraction = true
		case c != '-' && c != '+' && (c < '0' || c > '9'):
			break scan
		}
	}
	word := string(t.src[:end])
	t.src = t.src[end:]
	switch {
	case fraction:
		f, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return err
		}
		t.dst = msgp.AppendFloat64(t.dst, f)
	case word[0] == '-':
		i, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return err
		}
		t.dst = msgp.AppendInt64(t.dst, i)
	default:
		u, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return err
		}
		t.dst = msgp.AppendUint64(t.dst, u)
	}
	return nil
}
