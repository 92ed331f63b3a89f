package encoder

import "slices"

// recall goes as far into the text as the memo knows it, and takes over what it
// knows. It reports whether that was everything.
func (j *job) recall() (done bool) {
	r, m := j.r, j.e.memo
	if m == nil {
		r.open = append(r.open, j.e.tokenizer.Prefix(j.special)...)
		return false
	}
	j.node = m.root(j.seed, j.special)
	if !j.load(j.node) {
		r.open = append(r.open, j.e.tokenizer.Prefix(j.special)...)
		j.noteAs(freshNode{key: j.node})
	}
	table := m.marks.now.Load()
	for j.pos < j.usable {
		rest := j.text[j.pos:j.usable]
		end := table.cut(rest, m.least(j.pos), j.hints)
		if end < 0 || !j.load(m.child(j.node, rest[:end], false)) {
			if j.whole && j.hints&endHint != 0 {
				done = j.load(m.child(j.node, rest, true))
				end = len(rest)
			}
			if !done {
				break
			}
		}
		j.pos += end
	}
	j.cut, r.ReusedBytes = j.pos, j.pos
	m.count(j)
	return done
}

// load takes over the node k, when it is there.
func (j *job) load(k key) bool {
	r := j.r
	n, ok := j.e.memo.shard(k).load(k, r.Chains, r.open[:0])
	if !ok {
		return false
	}
	r.Chains, r.open = n.chains, n.tail
	r.path = append(r.path, k)
	j.node, j.hints, j.known = k, n.hints, len(n.chains)
	return true
}

// note makes a node of the text from the last cut to end.
func (j *job) note(m mark, end int) {
	if j.full {
		return
	}
	text := j.text[j.cut:end]
	j.cut = end
	j.node = j.e.memo.child(j.node, text, m == 0)
	j.noteAs(freshNode{key: j.node, mark: m})
}

// noteAs fills in f what is known up to here.
func (j *job) noteAs(f freshNode) {
	r := j.r
	r.close(j.e.layout, j.seed)
	f.tokens = r.tokens(j.e.layout)
	f.chainFrom, f.chainTo = j.known, len(r.Chains)
	f.tailFrom = len(r.tails)
	r.tails = append(r.tails, r.open...)
	f.tailTo = len(r.tails)
	j.known = len(r.Chains)
	if !j.e.memo.shard(f.key).fits(f.chainTo-f.chainFrom, f.tailTo-f.tailFrom) {
		j.full = true
		return
	}
	r.fresh = append(r.fresh, f)
}

// remember stores the new nodes, the last one first, and then marks those that
// were found as used, from the last to the root: what is dropped first is then
// what nothing else hangs on.
func (j *job) remember() {
	r, m := j.r, j.e.memo
	if m == nil {
		return
	}
	var h hints // of the node at hand: how the one behind it ends
	for i := len(r.fresh) - 1; i >= 0; i-- {
		f := &r.fresh[i]
		m.shard(f.key).store(&node{
			key: f.key, tokens: f.tokens, hints: h,
			chains: r.Chains[f.chainFrom:f.chainTo],
			tail:   r.tails[f.tailFrom:f.tailTo],
		})
		if f.mark == 0 {
			h = endHint
		} else {
			h = hints(0).with(f.mark)
		}
	}
	for _, k := range slices.Backward(r.path) {
		m.shard(k).touch(k, h)
		h = 0
	}
}

// count counts a prompt.
func (m *memo) count(j *job) {
	if j.pos > 0 {
		m.hits.Add(1)
	} else {
		m.misses.Add(1)
	}
	m.reused.Add(uint64(j.pos))
	m.fresh.Add(uint64(j.usable - j.pos))
}
