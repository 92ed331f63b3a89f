//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64 || wasm

package block

import "unsafe"

// tokenBytes views token ids as the little-endian bytes that are hashed. On
// these machines memory already has that order, so nothing is copied.
func tokenBytes(tokens []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens))
}
