package bpe

// Scratch is working memory of one goroutine. The zero value is ready; it grows
// to what the longest word needs and is then reused.
type Scratch struct {
	dead    []uint64 // bits by position in the word: leads nowhere
	symbols []symbol
	queue   queue
}

func (s *Scratch) clearDead(n int) {
	words := n/64 + 1
	if cap(s.dead) < words {
		s.dead = make([]uint64, words)
		return
	}
	s.dead = s.dead[:words]
	clear(s.dead)
}

func (s *Scratch) isDead(pos int) bool { return s.dead[pos/64]>>(pos%64)&1 != 0 }
func (s *Scratch) setDead(pos int)     { s.dead[pos/64] |= 1 << (pos % 64) }
