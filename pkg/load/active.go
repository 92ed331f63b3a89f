package load

import (
	"slices"

	"github.com/warmpath/warmpath/pkg/block"
)

// Bounds of the memory that is kept for reuse.
const (
	maxSpareRuns    = 1024
	maxSpareChains  = 1 << 17 // room of all spare runs together, 8 bytes each
	maxSpareRun     = 1 << 13 // room of one
	maxSpareHolders = 256     // of one
)

// prefixes are the blocks that requests under way use, and where: a trie over their
// chains in which a run stands for chains that always come together. Memory is
// bounded by what is in use.
//
// The first chain of a run stands for all before it, so one map finds every run,
// and a walk is a look-up per run.
type prefixes struct {
	byFirst map[block.Chain]*run

	spare       *run // linked by parent
	spareRuns   int
	spareChains int
}

// run is a run of chains that the same requests use.
type run struct {
	chains  []block.Chain // at least one
	parent  *run          // what comes before, nil for the start of a prompt
	holders []holder      // by row; those of all that follow are among them

	ends int         // requests whose chains end here
	kids int         // runs that follow
	kid  block.Chain // their first chains, XORed: the chain itself where there is one
}

// holder is a worker that uses a run.
type holder struct {
	row int32
	n   int32 // requests
}

func newPrefixes() prefixes { return prefixes{byFirst: map[block.Chain]*run{}} }

// depths writes, by row, how many chains from the start of a prompt are in use.
func (p *prefixes) depths(chains []block.Chain, out []int32) {
	var last *run
	for at := 0; at < len(chains); {
		r := p.byFirst[chains[at]]
		if r == nil || r.parent != last {
			return
		}
		n := block.Agree(r.chains, chains[at:])
		at += n
		for _, h := range r.holders {
			out[h.row] = int32(at)
		}
		if n < len(r.chains) {
			return
		}
		last = r
	}
}

// add lets a request on a worker use the chains. It returns the last run of them,
// how many the worker did not use before, and how many found no place: a collision
// of hashes makes two prompts look like none.
func (p *prefixes) add(chains []block.Chain, row int32) (last *run, fresh, left int) {
	for len(chains) > 0 {
		r := p.next(last, chains)
		if r == nil {
			break
		}
		if r.hold(row) {
			fresh += len(r.chains)
		}
		chains = chains[len(r.chains):]
		last = r
	}
	if last != nil {
		last.ends++
	}
	return last, fresh, len(chains)
}

// next returns the run after last with which the chains begin, all of it; nil when
// there is no place for one.
func (p *prefixes) next(last *run, chains []block.Chain) *run {
	r := p.byFirst[chains[0]]
	switch {
	case r == nil:
		return p.grow(last, chains)
	case r.parent != last:
		return nil
	}
	if n := block.Agree(r.chains, chains); n < len(r.chains) {
		return p.split(r, n)
	}
	return r
}

// grow adds a run after last.
func (p *prefixes) grow(last *run, chains []block.Chain) *run {
	r := p.take()
	r.chains = append(r.chains, chains...)
	r.parent = last
	if last != nil {
		last.kids++
		last.kid ^= chains[0]
	}
	p.byFirst[chains[0]] = r
	return r
}

// split makes the first n chains of a run one of their own, and returns it. The run
// itself is what follows: requests that end in it go on doing so.
func (p *prefixes) split(r *run, n int) *run {
	if p.byFirst[r.chains[n]] != nil {
		return nil
	}
	front := p.take()
	front.chains = append(front.chains, r.chains[:n]...)
	front.holders = append(front.holders, r.holders...)
	front.parent, front.kids, front.kid = r.parent, 1, r.chains[n]
	r.chains = r.chains[:copy(r.chains, r.chains[n:])]
	r.parent = front
	p.byFirst[front.chains[0]] = front
	p.byFirst[r.chains[0]] = r
	return front
}

// remove undoes one add that returned last, and returns how many chains the worker
// uses no more.
func (p *prefixes) remove(last *run, row int32) (freed int) {
	last.ends--
	left := last // the last run that is still in use
	for r := last; r != nil; {
		parent := r.parent
		if r.unhold(row) {
			freed += len(r.chains)
		}
		if len(r.holders) == 0 {
			p.cut(r)
			left = parent
		}
		r = parent
	}
	if left != nil && left.ends == 0 && left.kids == 1 {
		p.join(left)
	}
	return freed
}

// cut takes away a run that nobody uses, and that nothing follows therefore.
func (p *prefixes) cut(r *run) {
	delete(p.byFirst, r.chains[0])
	if r.parent != nil {
		r.parent.kids--
		r.parent.kid ^= r.chains[0]
	}
	p.give(r)
}

// join makes a run and the only one that follows it one: the latter, in which
// requests end.
func (p *prefixes) join(r *run) {
	kid := p.byFirst[r.kid]
	delete(p.byFirst, r.kid)
	if cap(r.chains) >= len(r.chains)+len(kid.chains) {
		r.chains, kid.chains = kid.chains, append(r.chains, kid.chains...)
	} else {
		kid.chains = slices.Insert(kid.chains, 0, r.chains...)
	}
	kid.parent = r.parent
	p.byFirst[kid.chains[0]] = kid
	p.give(r)
}

// take returns an empty run.
func (p *prefixes) take() *run {
	r := p.spare
	if r == nil {
		return &run{}
	}
	p.spare = r.parent
	p.spareRuns--
	p.spareChains -= cap(r.chains)
	*r = run{chains: r.chains[:0], holders: r.holders[:0]}
	return r
}

// give keeps a run for reuse, if there is room.
func (p *prefixes) give(r *run) {
	room := cap(r.chains)
	if p.spareRuns >= maxSpareRuns || room > maxSpareRun || p.spareChains+room > maxSpareChains {
		return
	}
	if cap(r.holders) > maxSpareHolders {
		r.holders = nil
	}
	r.parent, p.spare = p.spare, r
	p.spareRuns++
	p.spareChains += room
}

// hold counts a request of a worker, and says whether it is its first.
func (r *run) hold(row int32) bool {
	i := r.find(row)
	if i < len(r.holders) && r.holders[i].row == row {
		r.holders[i].n++
		return false
	}
	r.holders = slices.Insert(r.holders, i, holder{row: row, n: 1})
	return true
}

// unhold takes a request of a worker off, and says whether it was its last.
func (r *run) unhold(row int32) bool {
	i := r.find(row)
	if r.holders[i].n--; r.holders[i].n > 0 {
		return false
	}
	r.holders = slices.Delete(r.holders, i, i+1)
	return true
}

// find returns where a row is among the holders, or would be.
func (r *run) find(row int32) int {
	low, high := 0, len(r.holders)
	for low < high {
		if mid := int(uint(low+high) / 2); r.holders[mid].row < row {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
