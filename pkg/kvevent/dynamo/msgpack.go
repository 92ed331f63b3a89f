package dynamo

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// Reasons that many bad values share. They are fixed values, so that a message
// full of rubbish costs no allocation per value.
var (
	errShape    = errors.New("neither a map nor an array")
	errArray    = errors.New("not an array")
	errInteger  = errors.New("not an integer")
	errNegative = errors.New("negative")
	errRange32  = errors.New("does not fit in 32 bits")
	errString   = errors.New("not a string")
	errShort    = fmt.Errorf("cut short: %w", io.ErrUnexpectedEOF)
)

// short turns msgp's word for missing bytes into ours.
func short(err error) error {
	if errors.Is(err, msgp.ErrShortBytes) {
		return errShort
	}
	return err
}

// A layout is the head of a struct: Dynamo's serialiser writes a map of field
// names, and older ones the bare values in the order of the fields.
type layout struct {
	n     int
	keyed bool
}

// readLayout reads the head of a struct.
func readLayout(b []byte) (layout, []byte, error) {
	var n uint32
	var err error
	switch msgp.NextType(b) {
	case msgp.MapType:
		if n, b, err = msgp.ReadMapHeaderBytes(b); err != nil {
			return layout{}, nil, short(err)
		}
		return layout{n: int(n), keyed: true}, b, nil
	case msgp.ArrayType:
		n, b, err = readArray(b)
		return layout{n: int(n)}, b, err
	}
	if len(b) == 0 {
		return layout{}, nil, errShort
	}
	return layout{}, nil, errShape
}

// field says which of names the i-th field of a struct is, -1 for none, and
// returns the bytes of its value. Fields mostly come in order, so the i-th name
// is tried first.
func (l layout) field(b []byte, i int, names []string) (int, []byte, error) {
	if !l.keyed {
		if i < len(names) {
			return i, b, nil
		}
		return -1, b, nil
	}
	if t := msgp.NextType(b); t != msgp.StrType && t != msgp.BinType {
		rest, err := skip(b)
		return -1, rest, err
	}
	key, rest, err := msgp.ReadMapKeyZC(b)
	if err != nil {
		return -1, nil, short(err)
	}
	if i < len(names) && string(key) == names[i] {
		return i, rest, nil
	}
	for j, name := range names {
		if string(key) == name {
			return j, rest, nil
		}
	}
	return -1, rest, nil
}

// readArray reads the head of an array. A length that the remaining bytes cannot
// hold is an error at once.
func readArray(b []byte) (uint32, []byte, error) {
	if len(b) == 0 {
		return 0, nil, errShort
	}
	if msgp.NextType(b) != msgp.ArrayType {
		return 0, nil, errArray
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return 0, nil, short(err)
	}
	if uint64(n) > uint64(len(rest)) {
		return 0, nil, errShort
	}
	return n, rest, nil
}

// readUint reads an integer that cannot be negative, in any encoding.
func readUint(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.UintType:
		u, rest, err := msgp.ReadUint64Bytes(b)
		return u, rest, short(err)
	case msgp.IntType:
		i, rest, err := msgp.ReadInt64Bytes(b)
		if err != nil {
			return 0, nil, short(err)
		}
		if i < 0 {
			return 0, nil, errNegative
		}
		return uint64(i), rest, nil
	}
	if len(b) == 0 {
		return 0, nil, errShort
	}
	return 0, nil, errInteger
}

// readUint32 reads a readUint of at most 32 bits.
func readUint32(b []byte) (uint32, []byte, error) {
	u, rest, err := readUint(b)
	if err == nil && u > math.MaxUint32 {
		return 0, nil, errRange32
	}
	return uint32(u), rest, err
}

// readHash reads a 64-bit hash. A writer that holds hashes in signed integers
// gives half of them as negative numbers: the bits are what counts.
func readHash(b []byte) (uint64, []byte, error) {
	if msgp.NextType(b) == msgp.IntType {
		i, rest, err := msgp.ReadInt64Bytes(b)
		return uint64(i), rest, short(err)
	}
	return readUint(b)
}

// readWord reads a string without copying it.
func readWord(b []byte) ([]byte, []byte, error) {
	if len(b) == 0 {
		return nil, nil, errShort
	}
	if msgp.NextType(b) != msgp.StrType {
		return nil, nil, errString
	}
	word, rest, err := msgp.ReadStringZC(b)
	return word, rest, short(err)
}

// skip passes over one value, however deeply nested: it counts the values still
// to pass instead of recursing.
func skip(b []byte) ([]byte, error) {
	for pending := uint64(1); pending > 0; pending-- {
		if pending > uint64(len(b)) {
			return nil, errShort // every value takes a byte at least
		}
		var n uint32
		var err error
		switch msgp.NextType(b) {
		case msgp.MapType:
			n, b, err = msgp.ReadMapHeaderBytes(b)
			pending += 2 * uint64(n)
		case msgp.ArrayType:
			n, b, err = msgp.ReadArrayHeaderBytes(b)
			pending += uint64(n)
		default:
			b, err = msgp.Skip(b) // a leaf: no recursion
		}
		if err != nil {
			return nil, short(err)
		}
	}
	return b, nil
}
