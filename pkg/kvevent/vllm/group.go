package vllm

import "bytes"

// groups remembers which cache groups of a hybrid model are not main attention.
// Stores say what their group is, removals give only its number (engines.md 4.4).
type groups struct {
	other [4]uint64 // a bit per group
}

// learn takes in what a stored event says about its group, and reports whether
// the group is main attention. A group that says nothing is.
func (g *groups) learn(e *fields) bool {
	if e.spec == nil {
		return g.main(e)
	}
	main := mainAttention(e.spec)
	if e.hasGroup && e.group < 64*uint64(len(g.other)) {
		word, bit := &g.other[e.group/64], uint64(1)<<(e.group%64)
		*word &^= bit
		if !main {
			*word |= bit
		}
	}
	return main
}

// main reports whether an event's group is main attention, as far as is known. Of
// a group that never stored anything a removal does no harm.
func (g *groups) main(e *fields) bool {
	return !e.hasGroup || e.group >= 64*uint64(len(g.other)) || g.other[e.group/64]>>(e.group%64)&1 == 0
}

// mainAttention reports whether a cache holds what every later token needs of
// every block: full attention, MLA, or full attention with sinks (dynamo.md 2.7).
func mainAttention(spec []byte) bool {
	return string(spec) == "full_attention" || string(spec) == "mla_attention" || bytes.HasPrefix(spec, []byte("sink_full"))
}
