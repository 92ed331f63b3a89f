package index

import (
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// put notes that a column holds blocks on a tier: chains, in order, the first of
// which follows the block in a cell (0: unknown, or nothing) and is number depth
// of its prompt. It writes to cells where each lives, and to again whether the
// column held it before. It returns how many blocks there was room for.
func (x *tree) put(col column, t kvevent.Tier, parent cell, depth int, chains []block.Chain, cells []cell, again []bool) int {
	done := 0
	for done < len(chains) && x.room.affords(0) {
		id, off := x.locate(parent, chains[done])
		var n int
		if id != 0 {
			n = x.share(id, off, col, t, chains[done:], cells[done:], again[done:])
		} else {
			n = x.create(parent, depth+done, col, t, x.unknown(chains[done:]), cells[done:])
			clear(again[done : done+n])
		}
		if n == 0 {
			return done
		}
		done += n
		parent = cells[done-1]
	}
	return done
}

// locate returns the run and the position in it of the block that follows the
// one in a cell and has a chain, or 0.
func (x *tree) locate(parent cell, c block.Chain) (id uint32, off int) {
	if parent != 0 {
		p := x.arena.runOf(parent)
		r := x.run(p)
		if parent+1 < r.end() {
			if x.arena.chain(parent+1) == c {
				return x.swept(p), int(parent + 1 - r.start)
			}
		} else if r.next != 0 {
			if n := x.run(r.next); n.start != 0 && x.first(n) == c {
				return x.swept(r.next), 0
			}
		}
	}
	return x.swept(x.find(c)), 0
}

// unknown returns the first chains up to one that begins a run.
func (x *tree) unknown(chains []block.Chain) []block.Chain {
	for i, c := range chains[1:] {
		if x.find(c) != 0 {
			return chains[:i+1]
		}
	}
	return chains
}

// share adds a column to the holders of blocks that are stored already: as many
// as agree with chains, from number off of a run on.
func (x *tree) share(id uint32, off int, col column, t kvevent.Tier, chains []block.Chain, cells []cell, again []bool) int {
	r := x.run(id)
	from := r.start + cell(off)
	n := common(x.arena.view(from, int(r.length)-off), chains)
	number(cells[:n], from)
	held := x.sets.has(r.sets[t], col)
	for i := range n {
		again[i] = held
	}
	if held {
		return n
	}
	id = x.isolate(id, off, n)
	r = x.run(id)
	x.assign(r, t, x.sets.with(r.sets[t], col))
	x.joinBoth(id)
	return n
}

// isolate makes n blocks of a run, from number off on, a run of their own.
func (x *tree) isolate(id uint32, off, n int) uint32 {
	if off > 0 {
		_, id = x.split(id, off)
	}
	if n < int(x.run(id).length) {
		id, _ = x.split(id, n)
	}
	return id
}

// create stores new blocks, behind the run of their parent where they fit there.
func (x *tree) create(parent cell, depth int, col column, t kvevent.Tier, chains []block.Chain, cells []cell) int {
	var sets [kvevent.NumTiers]setID
	sets[t] = single(col)
	var before *run
	if parent != 0 {
		id := x.arena.runOf(parent)
		if r := x.run(id); r.end() == parent+1 {
			if r.sets == sets {
				if n := x.extend(id, chains, cells); n > 0 {
					return n
				}
			}
			before = r
		}
	}
	// A run that could not grow where it lies, because other runs do too, gets
	// room ahead the next time.
	want := max(len(chains), min(depth, keepFactor*len(chains), keepAhead))
	start, room := x.arena.alloc(want)
	n := min(room, len(chains))
	if n == 0 {
		return 0
	}
	id := x.newRun()
	*x.run(id) = run{start: start, length: uint16(n), room: uint16(room), depth: uint32(depth), sets: sets}
	copy(x.arena.view(start, n), chains)
	x.arena.own(start, n, id)
	x.heads.enter(chains[0], id)
	if before != nil {
		before.next = id
	}
	number(cells[:n], start)
	return n
}

// extend stores new blocks at the end of a run, as many as fit there.
func (x *tree) extend(id uint32, chains []block.Chain, cells []cell) int {
	r := x.run(id)
	if short := int(r.length) + len(chains) - int(r.room); short > 0 {
		r.room += uint16(x.arena.grow(r.start+cell(r.room), short))
	}
	n := min(int(r.room-r.length), len(chains))
	if n == 0 {
		return 0
	}
	copy(x.arena.view(r.end(), n), chains)
	x.arena.own(r.end(), n, id)
	number(cells[:n], r.end())
	r.length += uint16(n)
	return n
}

func number(cells []cell, from cell) {
	for i := range cells {
		cells[i] = from + cell(i)
	}
}

// take notes that a column no longer holds the blocks in n cells, side by side
// in one run. It does nothing and returns false where there is no memory for that.
func (x *tree) take(col column, t kvevent.Tier, from cell, n int) bool {
	if !x.room.affords(0) {
		return false
	}
	id := x.swept(x.arena.runOf(from))
	r := x.run(id)
	var only [kvevent.NumTiers]setID
	only[t] = single(col)
	off := int(from - r.start)
	if r.sets == only {
		switch {
		case n == int(r.length):
			x.drop(id)
			return true
		case off+n == int(r.length):
			x.truncate(r, off)
			return true
		}
	}
	id = x.isolate(id, off, n)
	r = x.run(id)
	x.assign(r, t, x.sets.without(r.sets[t], col))
	if r.empty() {
		x.drop(id)
		return true
	}
	x.joinBoth(id)
	return true
}

// holds reports whether anybody holds the block in a cell.
func (x *tree) holds(c cell) bool { return x.arena.runOf(c) != 0 }

// depth returns the number of the block in a cell, in its prompt.
func (x *tree) depth(c cell) int {
	r := x.run(x.arena.runOf(c))
	return int(r.at()) + int(c-r.start)
}

// shareAt adds a column to the holders of the block in a cell and of those that
// follow it there and agree with chains. It returns how many, 0 where there is no
// memory for that.
func (x *tree) shareAt(c cell, col column, t kvevent.Tier, chains []block.Chain, cells []cell, again []bool) int {
	if !x.room.affords(0) {
		return 0
	}
	id := x.swept(x.arena.runOf(c))
	return x.share(id, int(c-x.run(id).start), col, t, chains, cells, again)
}

// stretch returns how many of the first cells lie side by side in one run, in
// rising or falling order, and the lowest of them.
func (x *tree) stretch(cells []cell) (n int, from cell) {
	r := x.run(x.arena.runOf(cells[0]))
	n = 1
	for n < len(cells) && cells[n] == cells[n-1]+1 && cells[n] < r.end() {
		n++
	}
	if n > 1 {
		return n, cells[0]
	}
	for n < len(cells) && cells[n] == cells[n-1]-1 && cells[n] >= r.start {
		n++
	}
	return n, cells[n-1]
}
