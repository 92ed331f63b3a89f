package tokenizer

import "testing"

// EncodeAllocs returns how often encoding a text allocates, with the working
// memory of a call before.
func EncodeAllocs(tok *Tokenizer, text string) float64 {
	s := tok.scratch()
	ids, _ := tok.encode(nil, text, 0, false, s)
	return testing.AllocsPerRun(5, func() { ids, _ = tok.encode(ids[:0], text, 0, false, s) })
}
