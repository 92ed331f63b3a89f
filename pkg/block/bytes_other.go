//go:build !(386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64 || wasm)

package block

import "encoding/binary"

// tokenBytes returns token ids as the little-endian bytes that are hashed.
func tokenBytes(tokens []uint32) []byte {
	buf := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	return buf
}
