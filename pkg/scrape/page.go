package scrape

import (
	"bytes"
	"cmp"
	"math"
	"time"

	"github.com/warmpath/warmpath/pkg/load"
)

// maxRanks bounds the ranks of one page that are told apart.
const maxRanks = 1024

// figure is what a page says of a quantity. Of several series the one with the
// newest timestamp counts, and of those that are equally new the largest value: of
// an engine's processes only one has work to tell of, and the sum of a queue's parts
// stands beside the parts.
type figure struct {
	value, time float64
	known       bool
}

func (f *figure) offer(value, at float64) {
	if !f.known || at > f.time || at == f.time && value > f.value {
		*f = figure{value, at, true}
	}
}

// adapters is what the newest series of vLLM's LoRA figures says: one has two lists,
// and one that is left out is empty. The slices point into the page.
type adapters struct {
	running, waiting []byte
	most             int
	time             float64
	known            bool
}

func (a *adapters) offer(s *sample) {
	n := adapters{running: s.labels[runningAdapters], waiting: s.labels[waitingAdapters], most: -1, time: s.value, known: true}
	if n.running == nil && n.waiting == nil {
		return
	}
	if v, ok := digits(s.labels[maxAdapters]); ok && v <= math.MaxInt32 {
		n.most = int(v)
	}
	// What comes after the time is only there so that the order of lines does not matter.
	if !a.known || cmp.Or(cmp.Compare(n.time, a.time), bytes.Compare(n.running, a.running),
		bytes.Compare(n.waiting, a.waiting), cmp.Compare(n.most, a.most)) > 0 {
		*a = n
	}
}

// rankFigures is what a page says of one rank, or of no rank in particular.
type rankFigures struct {
	rank     uint32
	figures  [quantities]figure
	adapters adapters
}

// page is what a page of metrics says. It is used again for page after page, and
// points into the bytes of the last.
type page struct {
	common rankFigures    // series without a rank
	ranks  []rankFigures  // in order of appearance
	byRank map[uint32]int // positions in ranks: a page may have a line for each of many, in any order
	bad    int            // lines of families that count, and cannot be read
	sample sample
}

// scan reads a page.
func (p *page) scan(b []byte) {
	p.common, p.ranks, p.bad = rankFigures{}, p.ranks[:0], 0
	if p.byRank == nil {
		p.byRank = map[uint32]int{}
	}
	clear(p.byRank)
	p.sample.scratch = p.sample.scratch[:0]
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if line = skip(line); len(line) == 0 {
			continue
		}
		if f, rest := familyOf(line); f != nil {
			p.take(f, bytes.TrimSuffix(rest, []byte{'\r'}))
		}
	}
}

// take reads a line of a family that counts.
func (p *page) take(f *family, line []byte) {
	s := &p.sample
	if !s.parse(line) {
		p.bad++
		return
	}
	r := p.rankOf(s)
	if r == nil {
		p.bad++
		return
	}
	switch f.form {
	case gauge:
		r.offer(f.of, s.value, s.time)
	case byLabel:
		for i := range f.cases {
			if string(s.labels[f.by]) == f.cases[i].value {
				r.offer(f.cases[i].of, s.value, s.time)
			}
		}
	case inLabels:
		for _, in := range f.in {
			if v, ok := digits(s.labels[in.label]); ok && v > 0 {
				r.offer(in.of, float64(v), s.time)
			}
		}
	case lora:
		if usable(s.value) {
			r.adapters.offer(s)
		}
	}
}

// maxUse is from which share on a figure is no share but another unit, such as
// percent. Up to it, what is above 1 counts as full.
const maxUse = 1.5

// offer takes in a value, unless it is none that a count or a share can have.
func (r *rankFigures) offer(q quantity, value, at float64) {
	if usable(value) && (q != kvUse || value <= maxUse) {
		r.figures[q].offer(value, at)
	}
}

func usable(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }

// rankOf returns the rank that a series is of; nil when there are too many.
func (p *page) rankOf(s *sample) *rankFigures {
	text := s.labels[engineLabel]
	if text == nil {
		text = s.labels[rankLabel]
	}
	v, ok := digits(text)
	if !ok { // no rank, or a name of something else
		return &p.common
	}
	i, known := p.byRank[uint32(v)]
	if !known {
		if i = len(p.ranks); i == maxRanks {
			return nil
		}
		p.byRank[uint32(v)] = i
		p.ranks = append(p.ranks, rankFigures{rank: uint32(v)})
	}
	return &p.ranks[i]
}

// of returns what the page says of the worker with a rank. alone says that no other
// worker of the pool has the page: what is said of no rank in particular is then said
// of it, and so is what is said of one rank only, whatever its number, since engines
// that are started one by one may all call themselves 0. Of several workers, counts
// of no rank in particular say nothing: they are those of all together.
//
// The lists are nil; names are for [names].
func (p *page) of(rank uint32, alone bool, at time.Time) (s load.Scraped, a *adapters, known bool) {
	own := &p.common
	if i, ok := p.byRank[rank]; ok {
		own = &p.ranks[i]
	} else if alone && len(p.ranks) == 1 {
		own = &p.ranks[0]
	}
	get := func(q quantity) (float64, bool) {
		f := own.figures[q]
		total := q == waiting || q == running || q == pending
		if !f.known && (alone || !total) {
			f = p.common.figures[q]
		}
		if total && own == &p.common && !alone {
			f.known = false
		}
		return f.value, f.known
	}
	s = load.Scraped{At: at, Waiting: -1, Running: -1, KVUse: -1, KVBlocks: -1, Block: -1, MaxAdapters: -1}
	for _, to := range []struct {
		n  *int
		of quantity
	}{{&s.Waiting, pending}, {&s.Waiting, waiting}, {&s.Running, running}, {&s.Block, blockSize}, {&s.KVBlocks, kvBlocks}} {
		if v, ok := get(to.of); ok && (v >= 1 || to.of < kvUse) { // no engine has 0 blocks: it does not know yet
			*to.n, known = int(min(v, math.MaxInt32)), true
		}
	}
	// Blocks of hybrid models differ in what they hold, so that their number says
	// little: the tokens do (engines.md 2.1).
	if v, ok := get(kvTokens); ok && s.Block > 0 {
		s.KVBlocks = int(min(v, math.MaxInt32*float64(s.Block))) / s.Block
	}
	if v, ok := get(kvUse); ok {
		s.KVUse, known = min(v, 1), true
	}
	if a = &own.adapters; !a.known {
		a = &p.common.adapters
	}
	if a.known {
		s.MaxAdapters, known = a.most, true
		return s, a, known
	}
	return s, nil, known
}
