package block

import "github.com/zeebo/xxh3"

// A prompt whose token ids are not known is cut into runs of its bytes instead of
// blocks of tokens, for approximate matching (endpoint-picker.md 4.9).
const (
	// TextBytes is the length of a run of text.
	TextBytes = 256
	// TextTokens is how many tokens a run is taken for, at four bytes each
	// (engines.md 6.1).
	TextTokens = TextBytes / 4
)

// NewTextSeed returns the seed for runs of text of prompts for a model, whose
// blocks of tokens have the given seed. It is another than that of any blocks, so
// that chains of text are never taken for chains of blocks.
func NewTextSeed(model string, blocks Seed) Seed {
	return Seed(xxh3.HashStringSeed(model, xxh3.HashStringSeed("text", uint64(blocks))))
}

// AppendTextHashes appends the content hash of every full run of a text, which is
// given in pieces, to dst and returns the extended slice. Where one piece ends and
// the next begins makes no difference. [AppendChains] makes chains of them.
func AppendTextHashes(dst []Hash, seed Seed, pieces [][]byte) []Hash {
	var part [TextBytes]byte // a run that began in an earlier piece
	n := 0
	for _, p := range pieces {
		if n > 0 {
			more := copy(part[n:], p)
			n, p = n+more, p[more:]
			if n < TextBytes {
				continue
			}
			dst = append(dst, Hash(xxh3.HashSeed(part[:], uint64(seed))))
		}
		for ; len(p) >= TextBytes; p = p[TextBytes:] {
			dst = append(dst, Hash(xxh3.HashSeed(p[:TextBytes], uint64(seed))))
		}
		n = copy(part[:], p)
	}
	return dst
}
