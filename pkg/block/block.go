package block

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// Hash is the content hash of one block of tokens: Dynamo's local block hash,
// "tokens_hash" on the wire. It does not depend on the block's position.
type Hash uint64

// Chain is the prefix-chain hash up to and including one block: Dynamo's
// sequence hash. Two prompts have equal chains at block i exactly when their
// first i+1 blocks are equal (up to collisions of a 64-bit hash).
type Chain uint64

// baseSeed is the XXH3 seed of every block and chain hash (dynamo.md 2.1, 2.2).
const baseSeed = 1337

// saltSeed is the XXH3 seed under which a cache salt is hashed (dynamo.md 2.1).
const saltSeed = 1

// Seed is the XXH3 seed of a prompt's block hashes. It carries what makes equal
// tokens unequal: the LoRA adapter and the cache salt. Chains always use the
// plain seed, whatever the blocks were hashed with.
type Seed uint64

// NewSeed returns the seed for a LoRA adapter name and a cache salt. An empty
// adapter or salt changes nothing. The two terms add, wrapping (dynamo.md 2.1;
// dynamo-live.md section 2).
func NewSeed(adapter, salt string) Seed {
	seed := uint64(baseSeed)
	if adapter != "" {
		seed += xxh3.HashString(adapter)
	}
	if salt != "" {
		seed += xxh3.HashStringSeed(salt, saltSeed)
	}
	return Seed(seed)
}

// Layout says how a prompt is cut into blocks.
type Layout struct {
	// Size is the tokens per block, at least 1.
	Size int
	// Eagle widens the window of each block by one token, which the next block
	// starts with, as workers with an EAGLE or MTP draft model do.
	Eagle bool
}

// Blocks returns the number of full blocks in a prompt of n tokens. The tail
// that does not fill a block has no hash.
func (l Layout) Blocks(n int) int {
	if l.Eagle {
		n--
	}
	if l.Size < 1 || n < l.Size {
		return 0
	}
	return n / l.Size
}

func (l Layout) window() int {
	if l.Eagle {
		return l.Size + 1
	}
	return l.Size
}

// AppendHashes appends the content hash of every full block of tokens to dst
// and returns the extended slice. It allocates only to grow dst.
func (l Layout) AppendHashes(dst []Hash, tokens []uint32, seed Seed) []Hash {
	n := l.Blocks(len(tokens))
	dst = slices.Grow(dst, n)
	for i := range n {
		start := i * l.Size
		dst = append(dst, Hash(xxh3.HashSeed(tokenBytes(tokens[start:start+l.window()]), uint64(seed))))
	}
	return dst
}

// HashWithMedia returns the content hash of one block of tokens that multimodal
// objects touch: their hashes follow the token bytes, ascending (dynamo.md 2.1).
func HashWithMedia(tokens []uint32, seed Seed, media []uint64) Hash {
	sorted := slices.Clone(media)
	slices.Sort(sorted)
	buf := make([]byte, 0, 4*len(tokens)+8*len(sorted))
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	for _, m := range sorted {
		buf = binary.LittleEndian.AppendUint64(buf, m)
	}
	return Hash(xxh3.HashSeed(buf, uint64(seed)))
}

// Root returns the chain of a prompt's first block: its content hash.
func Root(h Hash) Chain { return Chain(h) }

// Next returns the chain one block further (dynamo.md 2.2).
func (c Chain) Next(h Hash) Chain {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], uint64(c))
	binary.LittleEndian.PutUint64(buf[8:], uint64(h))
	return Chain(xxh3.HashSeed(buf[:], baseSeed))
}

// AppendChains appends the chain up to every block of hashes to dst and returns
// the extended slice. It allocates only to grow dst.
func AppendChains(dst []Chain, hashes []Hash) []Chain {
	if len(hashes) == 0 {
		return dst
	}
	dst = slices.Grow(dst, len(hashes))
	c := Root(hashes[0])
	dst = append(dst, c)
	for _, h := range hashes[1:] {
		c = c.Next(h)
		dst = append(dst, c)
	}
	return dst
}
