package tokenizer

import (
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/pretok"
)

// Tokenizer turns text into token ids. It is safe for concurrent use.
type Tokenizer struct {
	added        addedTokens
	normalizer   normalizer
	pretokenizer pretokenizer
	model        *bpe.Model
	vocab        keptVocabulary
	chunked      bool // see TiktokenConfig.Chunked
	size         int  // of the vocabulary with added tokens

	prefix, suffix []uint32

	pool sync.Pool // of *scratch
}

// scratch is the working memory of one call.
type scratch struct {
	bpe        bpe.Scratch
	mended     []byte
	normalized [2][]byte
	pieces     [][]byte // by cut
}

// Append appends the ids of a whole text to dst, with what the model's file puts
// around a text when addSpecial is set, and returns the extended slice. It is
// encode(text, add_special_tokens=addSpecial).ids of Hugging Face. In text that
// is not UTF-8, each maximal part that cannot be UTF-8 counts as U+FFFD, as with
// Python's errors="replace".
func (t *Tokenizer) Append(dst []uint32, text string, addSpecial bool) []uint32 {
	if addSpecial {
		dst = append(dst, t.prefix...)
	}
	s := t.scratch()
	dst, _ = t.encode(dst, text, 0, false, s)
	t.pool.Put(s)
	if addSpecial {
		dst = append(dst, t.suffix...)
	}
	return dst
}

// AppendSegment encodes text from the byte offset from on, up to and including
// the next safe split point or to the end of text, and returns the extended
// slice and where it stopped. from is 0 or an end that it returned for this text.
//
// A safe split point is the end of an added token after which nothing before it
// can change what follows, and which no text after it can undo. So Prefix, all
// segments and Suffix in a row are what Append gives, and two texts that are
// equal up to a safe split point have equal segments up to there.
func (t *Tokenizer) AppendSegment(dst []uint32, text string, from int) (ids []uint32, end int) {
	if from < 0 || from >= len(text) {
		return dst, len(text)
	}
	s := t.scratch()
	dst, end = t.encode(dst, text, from, true, s)
	t.pool.Put(s)
	return dst, end
}

// Prefix returns the ids that addSpecial puts before a text. The caller must not
// change them.
func (t *Tokenizer) Prefix(addSpecial bool) []uint32 {
	if !addSpecial {
		return nil
	}
	return slices.Clip(t.prefix)
}

// Suffix returns the ids that addSpecial puts after a text. The caller must not
// change them.
func (t *Tokenizer) Suffix(addSpecial bool) []uint32 {
	if !addSpecial {
		return nil
	}
	return slices.Clip(t.suffix)
}

// VocabSize is the number of tokens, with added ones.
func (t *Tokenizer) VocabSize() int { return t.size }

// ID returns the id of a token by its text, as the file has it. Added tokens come
// first. It is for setting things up: it may look through the whole vocabulary.
func (t *Tokenizer) ID(token string) (uint32, bool) {
	if id, ok := t.added.ids[token]; ok {
		return id, true
	}
	return t.vocab.id(token)
}

func (t *Tokenizer) scratch() *scratch {
	if s, ok := t.pool.Get().(*scratch); ok {
		return s
	}
	return &scratch{pieces: make([][]byte, len(t.pretokenizer.cuts))}
}

// encode encodes text from a place on, to its end or, for a segment, to the next
// safe split point.
func (t *Tokenizer) encode(dst []uint32, text string, from int, segment bool, s *scratch) (ids []uint32, end int) {
	size := len(text)
	if t.added.mends && !utf8.ValidString(text) {
		// A token may match what text is mended with: there are no split points in
		// the text as it is.
		s.mended = appendMended(s.mended[:0], text)
		text, segment = view(s.mended), false
	}
	at, next, blank := from, from, from
	for {
		f, ok := t.added.find(text, at, next, blank)
		if !ok {
			return t.gap(dst, text[at:], at == 0, s), size
		}
		if at < f.start {
			dst = t.gap(dst, text[at:f.start], at == 0, s)
		}
		if f.start < f.end {
			dst = append(dst, t.added.tokens[f.token].id)
		}
		at, next, blank = f.end, f.next, f.blank
		if segment && t.added.tokens[f.token].safe {
			return dst, at
		}
	}
}

// gap encodes text between added tokens that were found in the raw text. first
// says that it starts the whole text.
func (t *Tokenizer) gap(dst []uint32, text string, first bool, s *scratch) []uint32 {
	if text == "" {
		return dst
	}
	if !utf8.ValidString(text) {
		s.mended = appendMended(s.mended[:0], text)
		text = view(s.mended)
	}
	text = t.normalizer.apply(text, s)
	if t.chunked {
		return t.chunks(dst, text, s)
	}
	if t.added.joint || t.added.set == nil {
		return t.words(dst, text, 0, first, s)
	}
	at, next, blank := 0, 0, 0
	for {
		f, ok := t.added.findMarked(t.added.set, text, at, next, blank, true)
		if !ok {
			return t.words(dst, text[at:], 0, first && at == 0, s)
		}
		if at < f.start {
			dst = t.words(dst, text[at:f.start], 0, first && at == 0, s)
		}
		if f.start < f.end {
			dst = append(dst, t.added.tokens[f.token].id)
		}
		at, next, blank = f.end, f.next, f.blank
	}
}

// chunks encodes text chunk by chunk.
func (t *Tokenizer) chunks(dst []uint32, text string, s *scratch) []uint32 {
	for at, taken := 0, 0; at < len(text); {
		var end int
		end, taken = pretok.NextChunk(text, at, taken)
		dst = t.words(dst, text[at:end], 0, false, s)
		at = end
	}
	return dst
}

// words cuts text by the pre-tokenizer's cuts from the i-th on and encodes the
// words.
func (t *Tokenizer) words(dst []uint32, text string, i int, first bool, s *scratch) []uint32 {
	if text == "" {
		return dst
	}
	cuts := t.pretokenizer.cuts
	if i == len(cuts) {
		return t.model.Append(dst, text, &s.bpe)
	}
	c := &cuts[i]
	if !c.rewrite.none() {
		text, s.pieces[i] = c.rewrite.apply(text, first, s.pieces[i][:0])
	}
	if c.scanner == nil {
		return t.words(dst, text, i+1, first, s)
	}
	last := i+1 == len(cuts)
	for at := 0; at < len(text); {
		end := c.scanner.Next(text, at)
		piece := text[at:end]
		switch {
		case c.literal != nil && c.literal.Drops(piece):
		case last:
			dst = t.model.Append(dst, piece, &s.bpe)
		default:
			dst = t.words(dst, piece, i+1, first && at == 0, s)
		}
		at = end
	}
	return dst
}

// appendMended appends text with U+FFFD for each maximal part that cannot be
// UTF-8: a character that breaks off counts once, any other stray byte alone.
func appendMended(dst []byte, text string) []byte {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, "\uFFFD"...)
			i += brokenPart(text[i:])
			continue
		}
		dst = append(dst, text[i:i+size]...)
		i += size
	}
	return dst
}

// brokenPart returns the length of the part at the start of text that cannot be
// UTF-8: a lead byte and the continuation bytes that fit it, or one byte.
func brokenPart(text string) int {
	low, high, need := byte(0x80), byte(0xBF), 0
	c := text[0]
	switch {
	case 0xC2 <= c && c <= 0xDF:
		need = 1
	case 0xE0 <= c && c <= 0xEF:
		need = 2
	case 0xF0 <= c && c <= 0xF4:
		need = 3
	}
	switch c { // where the second byte is bounded
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	size := 1
	for ; size <= need && size < len(text) && low <= text[size] && text[size] <= high; size++ {
		low, high = 0x80, 0xBF
	}
	return size
}
