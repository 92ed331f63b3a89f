package encoder

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
)

// plainShard is the slow obvious twin of shard: a list, the node used last first.
type plainShard struct {
	nodes []node
	cells int
	limit int
	most  int
}

func (p *plainShard) at(k key) int {
	return slices.IndexFunc(p.nodes, func(n node) bool { return n.key == k })
}

func (p *plainShard) use(i int) *node {
	n := p.nodes[i]
	p.nodes = slices.Insert(slices.Delete(p.nodes, i, i+1), 0, n)
	return &p.nodes[0]
}

func (p *plainShard) need(n *node) int { return cellsFor(len(n.chains) + (len(n.tail)+1)/2) }

func (p *plainShard) store(n node) {
	if i := p.at(n.key); i >= 0 {
		used := p.use(i)
		used.hints = used.hints.union(n.hints)
		return
	}
	for p.cells+p.need(&n) > p.limit-1 || len(p.nodes) >= p.most {
		last := len(p.nodes) - 1
		p.cells -= p.need(&p.nodes[last])
		p.nodes = p.nodes[:last]
	}
	p.cells += p.need(&n)
	p.nodes = slices.Insert(p.nodes, 0, n)
}

func drawNode(t *rapid.T, layout block.Layout) node {
	n := node{
		key:    key{Lo: rapid.SampledFrom([]uint64{1, 2, 1 << 40, 1 << 62, 3 << 62, ^uint64(0)}).Draw(t, "lo"), Hi: uint64(rapid.IntRange(0, 30).Draw(t, "hi"))},
		hints:  hints(0).with(mark(rapid.IntRange(1, 63).Draw(t, "mark"))),
		tokens: rapid.IntRange(0, 300).Draw(t, "tokens"),
	}
	for i := range rapid.IntRange(0, 20).Draw(t, "chains") {
		n.chains = append(n.chains, block.Chain(n.key.Hi<<32|uint64(i)))
	}
	for i := range n.tokens - layout.Blocks(n.tokens)*layout.Size {
		n.tail = append(n.tail, uint32(n.key.Hi<<16)|uint32(i))
	}
	return n
}

func TestShardIsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := block.Layout{Size: 5, Eagle: rapid.Bool().Draw(t, "eagle")}
		budget := rapid.Int64Range(1500, 20000).Draw(t, "budget")
		var s shard
		if !s.init(layout, budget) {
			t.Fatalf("nothing fits in %d bytes", budget)
		}
		p := plainShard{limit: int(s.cells.limit), most: int(s.limit)}
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			n := drawNode(t, layout)
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				if s.fits(len(n.chains), len(n.tail)) {
					s.store(&n)
					p.store(n)
				}
			case 1:
				s.touch(n.key, n.hints)
				if i := p.at(n.key); i >= 0 {
					used := p.use(i)
					used.hints = used.hints.union(n.hints)
				}
			case 2:
				before, tail := []block.Chain{7}, []uint32{8}
				got, ok := s.load(n.key, before, tail)
				i := p.at(n.key)
				if ok != (i >= 0) {
					t.Fatalf("found %v, want %v", ok, i >= 0)
				}
				if !ok {
					continue
				}
				want := p.use(i)
				if got.key != want.key || got.tokens != want.tokens || got.hints != want.hints ||
					!slices.Equal(got.chains, append(before, want.chains...)) || !slices.Equal(got.tail, append(tail, want.tail...)) {
					t.Fatalf("%+v, want %+v", got, want)
				}
			}
			if int(s.nodes) != len(p.nodes) || int(s.cells.used) != p.cells || s.bytes() > budget {
				t.Fatalf("%d nodes in %d cells, %d bytes of %d; want %d in %d", s.nodes, s.cells.used, s.bytes(), budget, len(p.nodes), p.cells)
			}
		}
	})
}

func TestHintsKeepTheLastSeven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, want, end := hints(0), []mark{}, false
		add := func(m mark) {
			want = slices.DeleteFunc(want, func(o mark) bool { return o == m })
			want = slices.Insert(want, 0, m)
			want = want[:min(len(want), hintMarks)]
		}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			m := mark(rapid.IntRange(1, 12).Draw(t, "mark"))
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				h, end = h.union(endHint), true
			case 1:
				o := mark(rapid.IntRange(1, 12).Draw(t, "other"))
				h = h.union(hints(0).with(o).with(m))
				add(o)
				add(m)
			default:
				h = h.with(m)
				add(m)
			}
			for i := range hintMarks + 1 {
				w := mark(0)
				if i < len(want) {
					w = want[i]
				}
				if h.at(i) != w {
					t.Fatalf("%x at %d, want %v", h, i, want)
				}
			}
			if (h&endHint != 0) != end {
				t.Fatalf("%x: end %v", h, end)
			}
		}
	})
}
