package index

import (
	"fmt"
	"sync/atomic"
)

// The bounds of Config.MaxBytes. Below the least there is no room for the largest
// number of workers and their holder sets; beyond the most the 1<<28 blocks that
// can be addressed run out first, unless each is held by many workers.
const (
	MinBytes     = 4 << 20
	MaxBytes     = 1 << 38
	DefaultBytes = 2 << 30
)

// Config bounds an index.
type Config struct {
	// MaxBytes bounds the memory of all that the index holds, MinBytes to MaxBytes:
	// what Memory().Bytes counts is never more. Where it would be, the worker that
	// holds most loses the blocks that lie deepest in their prompts first, so that
	// no prefix goes before what follows it.
	MaxBytes int64
}

// Validate reports what is wrong with a Config.
func (c Config) Validate() error {
	if c.MaxBytes < MinBytes || c.MaxBytes > MaxBytes {
		return fmt.Errorf("max bytes of the prefix index: %d is not in %d to %d", c.MaxBytes, MinBytes, int64(MaxBytes))
	}
	return nil
}

// budget counts the bytes allocated for what an index holds, and keeps them
// within a bound. There are two kinds of growth.
//
// The bulk, which is chunks of cells and engine tables, is taken piece by piece,
// and stays below the bound by a reserve.
//
// What one step in the tree takes besides, for runs, heads and sets, is not
// refused half way: a step begins only where the most that it can take fits. The
// reserve is for that, so removals and sweeps find room when the bulk is full.
type budget struct {
	used atomic.Int64
	need atomic.Int64 // the most that one step of every tree can take
	hard int64
}

// reserveShare is the part of the bound that is kept for steps.
const reserveShare = 64

// soft is the bound of the bulk. It leaves room for two steps at least, so that
// one fits whatever is taken between its begin and its end.
func (b *budget) soft() int64 { return b.hard - max(b.hard/reserveShare, 2*b.need.Load()) }

// take takes bytes of the bulk, or none where they do not fit.
func (b *budget) take(n int64) bool {
	if n <= 0 {
		b.used.Add(n)
		return true
	}
	for {
		used := b.used.Load()
		if used+n > b.soft() {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// add counts bytes of a step that fits, or bytes given back.
func (b *budget) add(n int64) { b.used.Add(n) }

// affords reports whether a step fits that takes n bytes beside those of the tree.
func (b *budget) affords(n int64) bool { return b.used.Load()+b.need.Load()+n <= b.hard }

// over reports whether steps have used up some of the reserve.
func (b *budget) over() bool { return b.used.Load() > b.soft() }

// purse is what a table grows from: the bulk, or the reserve for steps.
type purse struct {
	*budget
	step bool
}

func (p purse) take(n int64) bool {
	if p.step {
		p.add(n)
		return true
	}
	return p.budget.take(n)
}
