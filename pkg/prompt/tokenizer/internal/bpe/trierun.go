package bpe

// shortRun is the longest run of one byte that is walked step by step.
const shortRun = 15

// runNode is where a walk down one byte again and again has come to.
type runNode struct {
	at   node
	last node // the last closed token on the way, 0 for none
	size int  // its length
}

// findRuns walks down each byte as often as there are nodes. Closed tokens are
// already marked.
func (t *trie) findRuns() {
	for b := range t.runs {
		n := t.nodes[0]
		var walk []runNode
		for here := (runNode{}); ; {
			slot, ok := t.child(n, byte(b))
			if !ok {
				break
			}
			n = t.nodes[slot]
			here.at = n
			if n&nodeClosed != 0 {
				here.last, here.size = n, len(walk)+1
			}
			walk = append(walk, here)
		}
		if len(walk) > shortRun {
			t.runs[b] = walk
		}
	}
}

// longestOfRun is longest, faster for a text that starts with a long run of one
// byte. The text is not empty.
func (t *trie) longestOfRun(text string) (id uint32, size int) {
	walk := t.runs[text[0]]
	if len(walk) == 0 {
		return t.longest(text)
	}
	depth := runLength(text[:min(len(text), len(walk))])
	here := walk[depth-1]
	n, last, size := here.at, here.last, here.size
	for i, b := range []byte(text[depth:]) {
		slot, ok := t.child(n, b)
		if !ok {
			break
		}
		n = t.nodes[slot]
		if n&nodeClosed != 0 {
			last, size = n, depth+i+1
		}
	}
	id, _ = last.token()
	return id, size
}

// runLength returns how often the first byte of text is repeated at its start.
func runLength(text string) int {
	b := text[0]
	eight := uint64(b) * 0x0101010101010101
	i := 0
	for ; i+8 <= len(text); i += 8 {
		t := text[i : i+8]
		if uint64(t[0])|uint64(t[1])<<8|uint64(t[2])<<16|uint64(t[3])<<24|
			uint64(t[4])<<32|uint64(t[5])<<40|uint64(t[6])<<48|uint64(t[7])<<56 != eight {
			break
		}
	}
	for i < len(text) && text[i] == b {
		i++
	}
	return i
}
