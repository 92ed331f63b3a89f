package index

import (
	"math/bits"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// columns gives columns to workers. A worker that is cleared or dropped leaves
// its column at once; what the sets still say about it is swept later, and only
// then is the column given out again.
type columns struct {
	slots []Slot   // of every column ever given out
	taken []uint64 // given out and not swept
	live  []uint64 // given out to workers that lookups credit
	dead  []uint64 // left, not swept yet
	left  int      // bits in dead

	// The pass under way: it sweeps the columns of going from runs at and up.
	going []uint64
	at    uint32
	swept uint64 // runs looked at
}

// columnBytes is what columns take, all of it from the start.
const columnBytes = maxColumns*2 + 4*maxColumns/8

func newColumns() columns {
	words := func() []uint64 { return make([]uint64, 0, maxColumns/wordBits) }
	return columns{slots: make([]Slot, 0, maxColumns), taken: words(), live: words(), dead: words(), going: words()}
}

// class returns which class of holder sets the columns given out need.
func (k *columns) class() int { return bits.Len(uint(max(1, len(k.taken)) - 1)) }

// sweepStep is how many runs a write looks at while there is anything to sweep.
const sweepStep = 64

// open gives out a column. It returns false where all are taken: as many
// generations as there may be workers are not swept yet.
func (x *tree) open(s Slot) (column, bool) {
	k := &x.columns
	for w, word := range k.taken {
		if word != ^uint64(0) {
			return k.give(column(w*wordBits+bits.TrailingZeros64(^word)), s), true
		}
	}
	if len(k.taken)*wordBits == maxColumns {
		return 0, false
	}
	c := k.give(column(len(k.taken)*wordBits), s)
	x.sets.class = k.class()
	x.sets.grew(0)
	return c, true
}

func (k *columns) give(c column, s Slot) column {
	k.taken = setBit(k.taken, c)
	for len(k.live) < len(k.taken) {
		k.live, k.dead = append(k.live, 0), append(k.dead, 0)
	}
	for len(k.slots) <= int(c) {
		k.slots = append(k.slots, 0)
	}
	k.live = setBit(k.live, c)
	k.slots[c] = s
	return c
}

// leave makes a column mean nobody.
func (x *tree) leave(c column) {
	k := &x.columns
	clearBit(k.live, c)
	k.dead = setBit(k.dead, c)
	k.left++
}

// sweep looks at sweepStep runs and takes the columns that were left out of their sets.
// It returns false where there is no memory to go on.
func (x *tree) sweep() bool {
	k := &x.columns
	for n := 0; n < sweepStep && k.left > 0; n++ {
		if k.at == 0 {
			k.going = append(k.going[:0], k.dead...)
			k.at = 1
		}
		if k.at >= x.used {
			k.finish()
			continue
		}
		if !x.room.affords(0) {
			return false
		}
		id := k.at
		k.at++
		k.swept++
		if x.run(id).start != 0 {
			x.clean(id)
		}
	}
	return true
}

// finish ends a pass: its columns are in no set any more.
func (k *columns) finish() {
	for w, word := range k.going {
		k.taken[w] &^= word
		k.dead[w] &^= word
		k.left -= bits.OnesCount64(word)
	}
	k.at = 0
}

// clean takes the columns that were left out of a run's sets, and drops a run
// that nobody holds. It reports whether the run is still there.
func (x *tree) clean(id uint32) bool {
	r := x.run(id)
	changed := false
	for t, s := range r.sets {
		if next := x.sets.minus(s, x.columns.dead); next != s {
			x.assign(r, kvevent.Tier(t), next)
			changed = true
		}
	}
	if r.empty() {
		x.drop(id)
		return false
	}
	if changed {
		x.joinBoth(id)
	}
	return true
}

// swept returns a run, or 0 when nobody but columns that were left holds it. A
// run that is about to be split is cleaned first, or a part of it could take an
// id that the pass under way has passed.
func (x *tree) swept(id uint32) uint32 {
	if id == 0 || x.columns.left == 0 {
		return id
	}
	r := x.run(id)
	for t, s := range r.sets {
		x.assign(r, kvevent.Tier(t), x.sets.minus(s, x.columns.dead))
	}
	if r.empty() {
		x.drop(id)
		return 0
	}
	return id
}

func (k *columns) count() int {
	n := 0
	for _, word := range k.taken {
		n += bits.OnesCount64(word)
	}
	return n
}

// reset makes columns that were left free, when no set has any.
func (k *columns) reset() {
	for w, word := range k.dead {
		k.taken[w] &^= word
		k.dead[w] = 0
	}
	k.left, k.at = 0, 0
}
