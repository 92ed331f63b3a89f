package bpe

import (
	"errors"
	"fmt"
)

const (
	// maxTokens is one more than the highest id, and maxMerges the number of
	// merges, that fit the packed table of pairs. The largest vocabularies in
	// use have a quarter of a million tokens and twice as many merges.
	maxTokens = 1 << idBits
	maxMerges = 1<<rankBits - 1
)

// Spec is a BPE model as its file describes it.
type Spec struct {
	// Tokens is the bytes of each token, by id. Nil is an id that the model's
	// vocabulary does not have. Byte-level alphabets are already undone.
	Tokens [][]byte
	// Merges are pairs of token ids; the first has the lowest rank. Of a pair
	// that is listed twice the last counts, as in Hugging Face.
	Merges [][2]uint32
	// Ranked says that ids are the ranks and merges are implied, as in files of
	// tiktoken: two neighbours merge when what they spell together is a token.
	// Merges must be empty.
	Ranked bool
	// IgnoreMerges says that a word which is a token is that token, whatever
	// merges would give.
	IgnoreMerges bool
	// Chars says that words start as Unicode characters (as in SentencePiece),
	// not as bytes.
	Chars bool
	// ByteFallback says that a character without a token becomes the tokens of
	// its bytes, when it has them all. It counts only with Chars.
	ByteFallback bool
	// ByteTokens is the id of each byte's token <0xNN>, -1 for none.
	ByteTokens [256]int32
	// Unk is the id of the token that stands for a symbol without one. With -1
	// such a symbol is left out, and its neighbours become neighbours.
	Unk int32
	// FuseUnk says that a run of such symbols becomes one Unk.
	FuseUnk bool
}

// check refuses what could not be looked up safely later.
func (s *Spec) check() error {
	if len(s.Tokens) > maxTokens {
		return fmt.Errorf("vocabulary has ids up to %d, the limit is %d", len(s.Tokens)-1, maxTokens-1)
	}
	if len(s.Merges) > maxMerges {
		return fmt.Errorf("%d merges, the limit is %d", len(s.Merges), maxMerges)
	}
	if s.Ranked && len(s.Merges) > 0 {
		return errors.New("a ranked vocabulary implies its merges, but some are listed")
	}
	if s.Unk >= 0 && !s.has(uint32(s.Unk)) {
		return fmt.Errorf("the unknown token has id %d, which is not in the vocabulary", s.Unk)
	}
	if s.byteFallback() {
		for b, id := range s.ByteTokens {
			if id >= 0 && !s.has(uint32(id)) {
				return fmt.Errorf("byte 0x%02X has id %d, which is not in the vocabulary", b, id)
			}
		}
	}
	for i, m := range s.Merges {
		for _, id := range m {
			if !s.has(id) || len(s.Tokens[id]) == 0 {
				return fmt.Errorf("merge %d names id %d, which is no token of the vocabulary", i, id)
			}
		}
	}
	return nil
}

func (s *Spec) has(id uint32) bool {
	return uint64(id) < uint64(len(s.Tokens)) && s.Tokens[id] != nil
}

func (s *Spec) byteFallback() bool { return s.Chars && s.ByteFallback }
