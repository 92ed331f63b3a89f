package encoder_test

import (
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

// fakeTokenizer knows a few added tokens. Other text is cut into words at
// blanks, and a word into threes of bytes, so what follows changes the last id.
type fakeTokenizer struct {
	added  []string        // id is 1 + place
	unsafe map[string]bool // tokens that end no segment
	prefix []uint32
	suffix []uint32
}

func newFake() *fakeTokenizer {
	return &fakeTokenizer{
		added:  []string{"<start>", "<end>", "<end>!", "<tool>", "<|>", "x<|"},
		unsafe: map[string]bool{"<end>": true, "x<|": true}, // "<end>!" contains one
		prefix: []uint32{101, 102}, suffix: []uint32{103},
	}
}

func (f *fakeTokenizer) Prefix(special bool) []uint32 {
	if !special {
		return nil
	}
	return f.prefix
}

func (f *fakeTokenizer) Suffix(special bool) []uint32 {
	if !special {
		return nil
	}
	return f.suffix
}

func (f *fakeTokenizer) id(token string) uint32 { return uint32(slices.Index(f.added, token) + 1) }

// next finds the leftmost added token from at on, of several the longest.
func (f *fakeTokenizer) next(text string, at int) (start int, token string) {
	start = len(text)
	for _, t := range f.added {
		i := strings.Index(text[at:], t)
		if i >= 0 && (at+i < start || at+i == start && len(t) > len(token)) {
			start, token = at+i, t
		}
	}
	return start, token
}

func (f *fakeTokenizer) words(dst []uint32, text string) []uint32 {
	for _, word := range strings.SplitAfter(text, " ") {
		for len(word) > 0 {
			piece := word[:min(3, len(word))]
			word = word[len(piece):]
			h := fnv.New32a()
			h.Write([]byte(piece))
			dst = append(dst, h.Sum32()|1<<31)
		}
	}
	return dst
}

func (f *fakeTokenizer) AppendSegment(dst []uint32, text string, from int) ([]uint32, int) {
	for from < len(text) {
		start, token := f.next(text, from)
		dst = f.words(dst, text[from:start])
		if token == "" {
			return dst, len(text)
		}
		dst = append(dst, f.id(token))
		from = start + len(token)
		if !f.unsafe[token] {
			break
		}
	}
	return dst, from
}

// whole is the twin of Prefix, all segments and Suffix.
func (f *fakeTokenizer) whole(text string, special bool) []uint32 {
	ids := slices.Clone(f.Prefix(special))
	for text != "" {
		start, token := f.next(text, 0)
		ids = f.words(ids, text[:start])
		if token != "" {
			ids = append(ids, f.id(token))
		}
		text = text[start+len(token):]
	}
	return append(ids, f.Suffix(special)...)
}

// twin is the slow way: everything anew.
func twin(ids []uint32, layout block.Layout, seed block.Seed) (hashes []block.Hash, chains []block.Chain) {
	hashes = layout.AppendHashes(nil, ids, seed)
	return hashes, block.AppendChains(nil, hashes)
}

// fakeTemplate gives a fixed prompt, or refuses.
type fakeTemplate struct {
	prompt chat.Prompt
	err    error
}

var errRefused = errors.New("refused")

func (f *fakeTemplate) Render(prompt.Kind, []byte, time.Time) (chat.Prompt, error) {
	return f.prompt, f.err
}

var (
	_ encoder.Tokenizer = (*fakeTokenizer)(nil)
	_ encoder.Template  = (*fakeTemplate)(nil)
)
