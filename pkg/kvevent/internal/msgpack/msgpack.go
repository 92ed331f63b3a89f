// Package msgpack reads the pieces of MessagePack that the codecs of KV events
// have in common: structs as maps or arrays, integers in any encoding, hashes,
// words, and what to pass over. Nothing here allocates or trusts a length.
package msgpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// Reasons that many bad values share. They are fixed values, so that a message
// full of rubbish costs no allocation per value.
var (
	ErrShape    = errors.New("neither a map nor an array")
	ErrArray    = errors.New("not an array")
	ErrInteger  = errors.New("not an integer")
	ErrNegative = errors.New("negative")
	ErrRange32  = errors.New("does not fit in 32 bits")
	ErrString   = errors.New("not a string")
	ErrShort    = fmt.Errorf("cut short: %w", io.ErrUnexpectedEOF)
)

// Short turns msgp's word for missing bytes into ours.
func Short(err error) error {
	if errors.Is(err, msgp.ErrShortBytes) {
		return ErrShort
	}
	return err
}

// FieldError names the field that an error is about; f is -1 for an unknown one.
func FieldError(names []string, f int, err error) error {
	if f < 0 {
		return fmt.Errorf("unknown field: %w", err)
	}
	return fmt.Errorf("%s: %w", names[f], err)
}

// A Layout is the head of a struct: a map of field names, or the bare values in
// the order of the fields, as older serialisers write.
type Layout struct {
	N     int
	Keyed bool
}

// ReadLayout reads the head of a struct.
func ReadLayout(b []byte) (Layout, []byte, error) {
	var n uint32
	var err error
	switch msgp.NextType(b) {
	case msgp.MapType:
		if n, b, err = msgp.ReadMapHeaderBytes(b); err != nil {
			return Layout{}, nil, Short(err)
		}
		return Layout{N: int(n), Keyed: true}, b, nil
	case msgp.ArrayType:
		n, b, err = ReadArray(b)
		return Layout{N: int(n)}, b, err
	}
	if len(b) == 0 {
		return Layout{}, nil, ErrShort
	}
	return Layout{}, nil, ErrShape
}

// Field says which of names the i-th field of a struct is, -1 for none, and
// returns the bytes of its value. Fields mostly come in order, so the i-th name
// is tried first.
func (l Layout) Field(b []byte, i int, names []string) (int, []byte, error) {
	if !l.Keyed {
		if i < len(names) {
			return i, b, nil
		}
		return -1, b, nil
	}
	if t := msgp.NextType(b); t != msgp.StrType && t != msgp.BinType {
		rest, err := Skip(b)
		return -1, rest, err
	}
	key, rest, err := msgp.ReadMapKeyZC(b)
	if err != nil {
		return -1, nil, Short(err)
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

// ReadArray reads the head of an array. A length that the remaining bytes cannot
// hold is an error at once.
func ReadArray(b []byte) (uint32, []byte, error) {
	if len(b) == 0 {
		return 0, nil, ErrShort
	}
	if msgp.NextType(b) != msgp.ArrayType {
		return 0, nil, ErrArray
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return 0, nil, Short(err)
	}
	if uint64(n) > uint64(len(rest)) {
		return 0, nil, ErrShort
	}
	return n, rest, nil
}

// ReadUint reads an integer that cannot be negative, in any encoding.
func ReadUint(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.UintType:
		u, rest, err := msgp.ReadUint64Bytes(b)
		return u, rest, Short(err)
	case msgp.IntType:
		i, rest, err := msgp.ReadInt64Bytes(b)
		if err != nil {
			return 0, nil, Short(err)
		}
		if i < 0 {
			return 0, nil, ErrNegative
		}
		return uint64(i), rest, nil
	}
	if len(b) == 0 {
		return 0, nil, ErrShort
	}
	return 0, nil, ErrInteger
}

// ReadUint32 reads a ReadUint of at most 32 bits.
func ReadUint32(b []byte) (uint32, []byte, error) {
	u, rest, err := ReadUint(b)
	if err == nil && u > math.MaxUint32 {
		return 0, nil, ErrRange32
	}
	return uint32(u), rest, err
}

// ReadHash reads a 64-bit hash. A writer that holds hashes in signed integers
// gives half of them as negative numbers: the bits are what counts.
func ReadHash(b []byte) (uint64, []byte, error) {
	if len(b) > 8 && b[0] == 0xcf { // as most of them are
		return binary.BigEndian.Uint64(b[1:]), b[9:], nil
	}
	if msgp.NextType(b) == msgp.IntType {
		i, rest, err := msgp.ReadInt64Bytes(b)
		return uint64(i), rest, Short(err)
	}
	return ReadUint(b)
}

// ReadWord reads a string without copying it.
func ReadWord(b []byte) ([]byte, []byte, error) {
	if len(b) == 0 {
		return nil, nil, ErrShort
	}
	if msgp.NextType(b) != msgp.StrType {
		return nil, nil, ErrString
	}
	word, rest, err := msgp.ReadStringZC(b)
	return word, rest, Short(err)
}

// Skip passes over one value, however deeply nested: it counts the values still
// to pass instead of recursing.
func Skip(b []byte) ([]byte, error) {
	for pending := uint64(1); pending > 0; pending-- {
		if pending > uint64(len(b)) {
			return nil, ErrShort // every value takes a byte at least
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
			return nil, Short(err)
		}
	}
	return b, nil
}
