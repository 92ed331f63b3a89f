package bpe

// trie finds tokens by their bytes. It is a double array: the child of a node
// for a byte is the slot base XOR byte, and it is there when the slot carries
// that byte. Bases are unique, so the byte alone proves whose child it is. One
// node is one word, so a step is one load.
type trie struct {
	nodes []node
	// runs is the walk down one byte again and again, by byte, where it is long.
	runs [256][]runNode
}

// node is, from the lowest bit: the byte that leads here, one bit that says the
// slot is taken, the base of the children (0 when there are none), the id of the
// token that ends here plus one (0 for none), and whether that token is closed.
type node uint64

const (
	nodeTaken  = 1 << 8
	nodeEdge   = nodeTaken<<1 - 1
	baseShift  = 9
	baseBits   = 64 - baseShift - tokenBits - 1
	tokenShift = baseShift + baseBits
	tokenBits  = idBits + 1
	nodeClosed = 1 << 63
)

func (n node) base() uint32 { return uint32(n>>baseShift) & (1<<baseBits - 1) }

// token returns the id of the token that ends at the node.
func (n node) token() (id uint32, ok bool) {
	v := uint32(n>>tokenShift) & (1<<tokenBits - 1)
	return v - 1, v != 0
}

// child returns the slot of a node's child.
func (t *trie) child(n node, b byte) (slot uint32, ok bool) {
	slot = n.base() ^ uint32(b)
	return slot, t.nodes[slot]&nodeEdge == nodeTaken|node(b)
}

// walk follows bytes from a slot and returns the slot it ends at.
func (t *trie) walk(slot uint32, text []byte) (end uint32, ok bool) {
	for _, b := range text {
		if slot, ok = t.child(t.nodes[slot], b); !ok {
			return 0, false
		}
	}
	return slot, true
}

// find returns the id of the token of these bytes.
func (t *trie) find(text string) (id uint32, ok bool) {
	n := t.nodes[0]
	for i := range len(text) {
		slot, ok := t.child(n, text[i])
		if !ok {
			return 0, false
		}
		n = t.nodes[slot]
	}
	return n.token()
}

// longest returns the longest closed token that text starts with, and its
// length; 0 for none.
func (t *trie) longest(text string) (id uint32, size int) {
	nodes := t.nodes
	n := nodes[0]
	var last node
	for i := range len(text) {
		b := node(text[i])
		n = nodes[uint32(n>>baseShift)&(1<<baseBits-1)^uint32(b)]
		if n&nodeEdge != nodeTaken|b {
			break
		}
		if n&nodeClosed != 0 {
			last, size = n, i+1
		}
	}
	return uint32(last>>tokenShift)&(1<<tokenBits-1) - 1, size
}
