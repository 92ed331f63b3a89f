package bpe

const (
	choiceBits = 10
	// noChoice is what a lookup finds where no token is valid.
	noChoice = ^uint32(0)
)

// choices remembers what may follow a token. It depends on nothing but the
// model. Few tokens follow each other where the search steps back again and
// again, so a small table knows them.
type choices struct {
	of    *Model // the model that the table is about
	slots [1 << choiceBits]choice
}

// choice is one answer of [Model.choose]. An empty slot has the key 0: the token
// 0 after itself, which is never asked for.
type choice struct {
	key  uint64 // left and from, packed
	next uint32
}

// get returns what choose does.
func (c *choices) get(m *Model, left, from uint32) uint32 {
	if c.of != m {
		*c = choices{of: m}
	}
	key := packPair(left, from)
	slot := &c.slots[key*0x9E3779B97F4A7C15>>(64-choiceBits)]
	if slot.key != key {
		*slot = choice{key, m.choose(left, from)}
	}
	return slot.next
}
