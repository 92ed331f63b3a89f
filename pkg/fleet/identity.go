package fleet

import (
	"encoding/binary"
	"math/bits"
)

// idMask keeps the 53 bits of a worker id that survive a float64
// (dynamo.md 3.1).
const idMask = 1<<53 - 1

// WorkerID returns the worker id that Dynamo derives from a pod name with
// Kubernetes discovery: SipHash-1-3 with zero keys over the name and one byte
// 0xFF, cut to 53 bits (dynamo.md 3.1). In container mode the name is
// "<pod>-<container>", except for the container "main". The namespace is not
// part of it.
func WorkerID(podName string) uint64 {
	return sipHash13(append([]byte(podName), 0xff)) & idMask
}

// sipHash13 is SipHash with one round per word and three at the end, under a
// zero key. The Go libraries implement the 2-4 variant only.
func sipHash13(msg []byte) uint64 {
	s := sipState{0x736f6d6570736575, 0x646f72616e646f6d, 0x6c7967656e657261, 0x7465646279746573}
	tail := uint64(len(msg)) << 56
	for len(msg) >= 8 {
		m := binary.LittleEndian.Uint64(msg)
		s[3] ^= m
		s.round()
		s[0] ^= m
		msg = msg[8:]
	}
	for i, b := range msg {
		tail |= uint64(b) << (8 * i)
	}
	s[3] ^= tail
	s.round()
	s[0] ^= tail
	s[2] ^= 0xff
	for range 3 {
		s.round()
	}
	return s[0] ^ s[1] ^ s[2] ^ s[3]
}

type sipState [4]uint64

func (s *sipState) round() {
	s[0] += s[1]
	s[1] = bits.RotateLeft64(s[1], 13) ^ s[0]
	s[0] = bits.RotateLeft64(s[0], 32)
	s[2] += s[3]
	s[3] = bits.RotateLeft64(s[3], 16) ^ s[2]
	s[0] += s[3]
	s[3] = bits.RotateLeft64(s[3], 21) ^ s[0]
	s[2] += s[1]
	s[1] = bits.RotateLeft64(s[1], 17) ^ s[2]
	s[2] = bits.RotateLeft64(s[2], 32)
}
