package msgpack

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// FuzzSkip holds Skip against msgp's own, which recurses, and the readers against
// the promise that they pass exactly what Skip passes.
func FuzzSkip(f *testing.F) {
	f.Add([]byte{0x93, 0xc0, 0xa1, 'x', 0x81, 0x01, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0xcf, 0xff, 0, 0, 0, 0, 0, 0, 1})
	f.Add([]byte{0xd3, 0xff, 0, 0, 0, 0, 0, 0, 1})
	f.Add([]byte{0xc7, 1, 5, 0})
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		rest, err := Skip(b)
		other, otherErr := msgp.Skip(b)
		if errors.Is(otherErr, msgp.ErrRecursion) {
			otherErr, other = err, rest // too deep for msgp only
		}
		if (err == nil) != (otherErr == nil) || err == nil && !bytes.Equal(rest, other) {
			t.Fatalf("%x: %x, %v; msgp: %x, %v", b, rest, err, other, otherErr)
		}
		check := func(name string, after []byte, readErr error) {
			if readErr == nil && (err != nil || !bytes.Equal(after, rest)) {
				t.Fatalf("%s of %x: %x left; passed: %x, %v", name, b, after, rest, err)
			}
		}
		_, after, readErr := ReadUint(b)
		check("ReadUint", after, readErr)
		_, after, readErr = ReadHash(b)
		check("ReadHash", after, readErr)
		_, after, readErr = ReadWord(b)
		check("ReadWord", after, readErr)
	})
}

func TestIntegers(t *testing.T) {
	for _, u := range []uint64{0, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, 1 << 63, math.MaxUint64} {
		b := msgp.AppendUint64(nil, u)
		got, rest, err := ReadUint(b)
		if got != u || len(rest) > 0 || err != nil {
			t.Errorf("ReadUint: %d, %v; want %d", got, err, u)
		}
		if got, _, err := ReadHash(b); got != u || err != nil {
			t.Errorf("ReadHash: %d, %v; want %d", got, err, u)
		}
		if got, _, err := ReadHash(msgp.AppendInt64(nil, int64(u))); got != u || err != nil {
			t.Errorf("ReadHash of the signed form: %d, %v; want %d", got, err, u)
		}
		if _, _, err := ReadUint32(b); (u > math.MaxUint32) != (err == ErrRange32) {
			t.Errorf("ReadUint32 of %d: %v", u, err)
		}
		for cut := range b {
			if _, _, err := ReadHash(b[:cut]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%x cut at %d: %v", b, cut, err)
			}
		}
	}
	if _, _, err := ReadUint([]byte{0xff}); err != ErrNegative {
		t.Errorf("minus one: %v", err)
	}
}

// TestDepth: nesting costs no stack.
func TestDepth(t *testing.T) {
	deep := []byte(strings.Repeat("\x91", 1<<20) + "\xc0")
	if rest, err := Skip(deep); err != nil || len(rest) > 0 {
		t.Errorf("%d left, %v", len(rest), err)
	}
	if _, err := Skip(deep[:1<<20]); err != ErrShort {
		t.Errorf("cut: %v", err)
	}
}

func TestFields(t *testing.T) {
	names := []string{"a", "b"}
	for name, c := range map[string]struct {
		b    []byte
		i    int
		want int
		rest int
	}{
		"in order": {[]byte("\xa1bX"), 1, 1, 1}, "out of order": {[]byte("\xa1bX"), 0, 1, 1}, "further": {[]byte("\xa1aX"), 5, 0, 1},
		"unknown": {[]byte("\xa1cX"), 0, -1, 1}, "as bytes": {[]byte("\xc4\x01aX"), 0, 0, 1}, "no word": {[]byte("\x92\x01\xa1aX"), 0, -1, 1},
	} {
		f, rest, err := Layout{N: 9, Keyed: true}.Field(c.b, c.i, names)
		if f != c.want || len(rest) != c.rest || err != nil {
			t.Errorf("%s: field %d, %q left, %v", name, f, rest, err)
		}
	}
	if f, _, _ := (Layout{N: 9}).Field(nil, 2, names); f != -1 {
		t.Errorf("beyond the names: %d", f)
	}
	if err := FieldError(names, 1, ErrShape); !errors.Is(err, ErrShape) || !strings.HasPrefix(err.Error(), "b: ") {
		t.Error(err)
	}
	if err := FieldError(names, -1, ErrShape); !strings.HasPrefix(err.Error(), "unknown field: ") {
		t.Error(err)
	}
}
