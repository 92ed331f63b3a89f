package vllm

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// readTokens appends the token ids of an array to dst. They are most of a message,
// so the usual encodings are read here.
func readTokens(dst []uint32, b []byte) ([]uint32, []byte, error) {
	n, b, err := msgpack.ReadArray(b)
	if err != nil {
		return dst, nil, err
	}
	first := len(dst)
	dst = slices.Grow(dst, int(n))[:first+int(n)]
	tokens := dst[first:]
	for i := range tokens {
		if len(b) >= 5 { // the longest of them
			switch tag := b[0]; {
			case tag == 0xcd:
				tokens[i] = uint32(binary.BigEndian.Uint16(b[1:]))
				b = b[3:]
				continue
			case tag == 0xce:
				tokens[i] = binary.BigEndian.Uint32(b[1:])
				b = b[5:]
				continue
			case tag < 0x80:
				tokens[i] = uint32(tag)
				b = b[1:]
				continue
			}
		}
		if tokens[i], b, err = msgpack.ReadUint32(b); err != nil {
			return dst[:first+i], nil, err
		}
	}
	return dst, b, nil
}

// readHashes appends the engine hashes of an array to dst.
func readHashes(dst []kvevent.EngineHash, b []byte) ([]kvevent.EngineHash, []byte, error) {
	n, b, err := msgpack.ReadArray(b)
	if err != nil {
		return dst, nil, err
	}
	dst = slices.Grow(dst, int(n))
	for range n {
		var h kvevent.EngineHash
		if h, b, err = readHash(b); err != nil {
			return dst, nil, err
		}
		dst = append(dst, h)
	}
	return dst, b, nil
}

var errNoDigest = errors.New("an empty digest")

// readHash reads an engine's hash: an integer, whose bits count when it is
// negative, or a digest, whose low 64 bits count, big-endian (engines.md 1.1).
func readHash(b []byte) (kvevent.EngineHash, []byte, error) {
	if msgp.NextType(b) != msgp.BinType {
		h, rest, err := msgpack.ReadHash(b)
		return kvevent.EngineHash(h), rest, err
	}
	digest, rest, err := msgp.ReadBytesZC(b)
	if err != nil {
		return 0, nil, msgpack.Short(err)
	}
	if len(digest) == 0 {
		return 0, nil, errNoDigest
	}
	var h uint64
	for _, c := range digest[max(0, len(digest)-8):] {
		h = h<<8 | uint64(c)
	}
	return kvevent.EngineHash(h), rest, nil
}
