package parity

// Diff is where two lists of token ids part.
type Diff struct {
	// Token is the index of the first token that differs, counted from 0. It is
	// the length of the shorter list where the longer one goes on.
	Token int
	// Local and Engine are the lengths of the two lists, in tokens.
	Local, Engine int
}

// Compare compares the ids of a prompt that were computed here with those of an
// engine. Of a partial prompt, which ends before an image or the like, only what
// there is has to be the same. The Diff tells something where ok is false.
func Compare(local, engine []uint32, partial bool) (d Diff, ok bool) {
	d = Diff{Local: len(local), Engine: len(engine)}
	for d.Token < min(len(local), len(engine)) {
		if local[d.Token] != engine[d.Token] {
			return d, false
		}
		d.Token++
	}
	return d, d.Token == len(local) && (partial || d.Token == len(engine))
}
