package index

import "github.com/warmpath/warmpath/pkg/fleet"

// Hide makes Match credit a worker with nothing, on every tier, until Show. What
// it holds is kept and events go on changing it; Held, Chains and Snapshot tell
// of it as ever. It is for a worker whose events were lost, until it is known
// again what it holds.
//
// A worker that is not registered is registered; ErrFull is the only error.
// Hiding outlasts Clear and Load and ends with Drop.
//
// Lookups pay nothing for it: they pass over columns that are not live anyway.
// Guesses of a Speculation are not hidden.
func (x *Index) Hide(k fleet.Key) error {
	r, err := x.enter(k)
	if err != nil {
		return err
	}
	defer r.mu.Unlock()
	x.setHidden(r, true)
	return nil
}

// Show ends Hide. It is a no-op for a worker that is not hidden.
func (x *Index) Show(k fleet.Key) {
	r := x.rank(k)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone { // or its column is given up
		x.setHidden(r, false)
	}
}

// Hidden reports whether a worker is hidden.
func (x *Index) Hidden(k fleet.Key) bool {
	r := x.rank(k)
	return r != nil && r.hidden.Load()
}

// setHidden hides or shows a worker whose lock is held.
func (x *Index) setHidden(r *rank, hidden bool) {
	if r.hidden.Swap(hidden) == hidden || !r.opened {
		return
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	x.tree.columns.show(r.column, !hidden)
}

// open gives a worker, whose lock and the tree's are held, a column of its own.
func (r *rank) open(x *tree) bool {
	if r.column, r.opened = x.open(r.slot); r.opened {
		x.columns.show(r.column, !r.hidden.Load())
	}
	return r.opened
}

// show makes a column count in lookups, or not.
func (k *columns) show(c column, seen bool) {
	if seen {
		k.live = setBit(k.live, c)
	} else {
		clearBit(k.live, c)
	}
}
