package index

import (
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// pieceBlocks bounds what one hold of the tree's lock does, so that lookups
// never wait for a long event.
const pieceBlocks = 128

// held is what an engine hash stands for: a cell, and above it one bit for every
// tier it is held on. 0 is nothing.
type held uint32

// pending stands for a block of the piece under way.
const pending held = 1<<32 - 1

func (h held) cell() cell               { return cell(h % maxCells) }
func (h held) on(t kvevent.Tier) bool   { return h>>(cellBits+t)&1 == 1 }
func (h held) add(t kvevent.Tier) held  { return h | 1<<(cellBits+t) }
func (h held) drop(t kvevent.Tier) held { return h &^ (1 << (cellBits + t)) }
func (h held) tiers() held              { return h >> cellBits }

// work is the memory of one piece of an event.
type work struct {
	chains [pieceBlocks]block.Chain
	cells  [pieceBlocks]cell
	old    [pieceBlocks]held
	again  [pieceBlocks]bool
	places [pieceBlocks]place
}

// Apply applies one event. It registers a worker it has not seen before, and
// returns ErrFull when there is no room for it, or ErrTier, having done nothing.
//
// A stored event whose parent the worker does not hold is skipped and counted:
// its place in the prompt is unknown. A removal of an unknown block is counted
// and the rest of the event applied.
//
// Of events with Copies a block that is held and comes again is one copy more,
// and a removal takes one copy: the block goes with the last. Any other removal
// takes the block with all its copies. An engine hash that comes with other
// content has one copy of that.
func (x *Index) Apply(ev *kvevent.Event) error {
	if ev.Tier >= kvevent.NumTiers {
		return ErrTier
	}
	r, err := x.enter(fleet.Key{ID: ev.WorkerID, Rank: ev.Rank})
	if err != nil {
		return err
	}
	switch ev.Kind {
	case kvevent.Stored:
		x.store(r, ev)
	case kvevent.Removed:
		x.remove(r, ev)
	case kvevent.Cleared:
		x.counters.cleared.Add(1)
		x.clear(r)
	}
	r.mu.Unlock()
	if ev.Kind == kvevent.Cleared && ev.AllRanks {
		x.clearRanks(ev.WorkerID)
	}
	if x.room.over() {
		x.relieve()
	}
	return nil
}

// clearRanks clears every rank of a worker, one by one.
func (x *Index) clearRanks(id uint64) {
	x.reg.RLock()
	defer x.reg.RUnlock()
	for k, r := range x.ranks {
		if k.ID == id {
			r.mu.Lock()
			x.clear(r)
			r.mu.Unlock()
		}
	}
}

// insertion is where a stored event stands.
type insertion struct {
	rank   *rank
	tier   kvevent.Tier
	copies bool // a block that is held is one copy more
	parent cell // of the next block; 0: none, or gone
	depth  int  // of the next block in its prompt
	chain  block.Chain
	engine kvevent.EngineHash // that chain is known by
	root   bool               // the next block begins a prompt
	full   bool               // there was no memory for the next block
	lost   bool               // nor for taking one away: the worker was cleared
	relief uint64             // how often memory was made before
}

func (x *Index) store(r *rank, ev *kvevent.Event) {
	if len(ev.Blocks) == 0 {
		return
	}
	at := insertion{rank: r, tier: ev.Tier, copies: ev.Copies, root: !ev.HasParent}
	if ev.HasParent {
		parent := held(r.blocks.get(uint64(ev.Parent)))
		if parent == 0 {
			x.counters.unknownParents.Add(1)
			if r.lossy {
				x.disown(r, ev.Blocks, nil)
			}
			return
		}
		at.parent, at.engine = parent.cell(), ev.Parent
		at.chain = x.tree.arena.chain(at.parent)
	}
	w := x.work.Get().(*work)
	for blocks := ev.Blocks; len(blocks) > 0; {
		blocks = blocks[x.storePiece(&at, blocks, w):]
		if at.full && !x.resume(&at) {
			x.refuse(&at, blocks)
			break
		}
	}
	x.work.Put(w)
}

// refuse counts blocks as not stored. Where their engine hashes stood for other
// content, that is gone all the same.
func (x *Index) refuse(at *insertion, blocks []kvevent.Block) {
	x.counters.noRoom.Add(uint64(len(blocks)))
	at.rank.lossy = true
	chains := make([]block.Chain, len(blocks))
	for i := range blocks {
		if at.root {
			at.chain, at.root = block.Root(blocks[i].Hash), false
		} else {
			at.chain = at.chain.Next(blocks[i].Hash)
		}
		chains[i] = at.chain
	}
	x.disown(at.rank, blocks, chains)
}

// disown takes away what engine hashes of a worker stand for, unless it is the
// blocks of the given chains. Without chains nothing is known of the blocks: they
// follow one that the worker has stored and the index has not, or lost.
func (x *Index) disown(r *rank, blocks []kvevent.Block, chains []block.Chain) {
	w := x.work.Get().(*work)
	defer x.work.Put(w)
	for len(blocks) > 0 {
		n, known := min(len(blocks), pieceBlocks), 0
		for i := range blocks[:n] {
			p, ok := r.blocks.find(uint64(blocks[i].Engine))
			if !ok || chains != nil && x.tree.arena.chain(held(p.value()).cell()) == chains[i] {
				continue
			}
			w.old[known] = held(p.value())
			known++
			r.blocks.remove(p)
			r.single(uint64(blocks[i].Engine))
		}
		if !x.unlinkAll(r, w, known) {
			return
		}
		if blocks = blocks[n:]; chains != nil {
			chains = chains[n:]
		}
	}
}

// unlinkAll takes the first n blocks of w.old away from a worker on all tiers. It
// returns false where it had to clear the worker.
func (x *Index) unlinkAll(r *rank, w *work, n int) bool {
	// Lower tiers first: they continue what the device holds.
	for t := kvevent.Tier(kvevent.NumTiers); t > 0; t-- {
		cells := w.cells[:0]
		for _, h := range w.old[:n] {
			if h.on(t - 1) {
				cells = append(cells, h.cell())
			}
		}
		if !x.unlink(r, t-1, cells) {
			return false
		}
	}
	return true
}

// resume makes room, for which the worker is unlocked, and reports whether the
// event can go on. It cannot where its last block is gone, by eviction or else:
// what follows would lie behind a hole.
func (x *Index) resume(at *insertion) bool {
	r := at.rank
	r.mu.Unlock()
	made := x.makeRoom(at.relief)
	r.mu.Lock()
	if !made || r.gone {
		return false
	}
	at.full = false
	if at.root {
		return true
	}
	h := held(r.blocks.get(uint64(at.engine)))
	if h == 0 || x.tree.arena.chain(h.cell()) != at.chain {
		return false
	}
	at.parent = h.cell()
	return true
}

// storePiece stores the first blocks, and returns how many: up to pieceBlocks,
// none twice, and none that there is no memory for.
func (x *Index) storePiece(at *insertion, blocks []kvevent.Block, w *work) int {
	r := at.rank
	at.relief = x.reliefs.Load()
	at.lost = false
	before := *at
	blocks = blocks[:min(len(blocks), pieceBlocks)]
	r.blocks.warm(blocks)
	moves := r.blocks.moves
	for i := range blocks {
		p, known, ok := r.blocks.insert(purse{x.room, false}, uint64(blocks[i].Engine), uint32(pending))
		if !ok {
			at.full, blocks = true, blocks[:i]
			break
		}
		w.places[i], w.old[i] = p, 0
		if known {
			if w.old[i] = held(p.value()); w.old[i] == pending {
				blocks = blocks[:i]
				break
			}
			p.set(uint32(pending))
		}
		if at.root {
			at.chain, at.root = block.Root(blocks[i].Hash), false
		} else {
			at.chain = at.chain.Next(blocks[i].Hash)
		}
		w.chains[i] = at.chain
	}

	n := len(blocks)
	if n == 0 {
		return 0
	}
	x.lock.Lock()
	done := x.link(at, w, n)
	x.lock.Unlock()

	x.counters.stored.Add(uint64(done))
	switch {
	case done > 0:
		at.chain, at.engine = w.chains[done-1], blocks[done-1].Engine
	case done < n:
		at.chain, at.root = before.chain, before.root
	}
	if at.lost {
		return done
	}
	for i := range blocks {
		p := w.places[i]
		if r.blocks.moves != moves { // since places were found, or a removal below
			p, _ = r.blocks.find(uint64(blocks[i].Engine))
		}
		if w.old[i] == 0 {
			r.single(uint64(blocks[i].Engine)) // or it stood for other content
		}
		switch {
		case i < done:
			if at.copies && w.old[i].on(at.tier) && !r.copied(x.room, blocks[i].Engine, at.tier) {
				x.counters.noRoom.Add(1)
			}
			p.set(uint32((w.old[i].tiers()<<cellBits | held(w.cells[i])).add(at.tier)))
		case w.old[i] == 0:
			r.blocks.remove(p)
		default:
			p.set(uint32(w.old[i]))
		}
	}
	return done
}

// link stores the n blocks of a piece in the tree, and returns how many there
// was room for.
func (x *Index) link(at *insertion, w *work, n int) int {
	r, t := at.rank, at.tier
	x.tree.sweep()
	if !r.opened && !r.open(x.tree) {
		at.full = true
		return 0
	}
	if at.depth == 0 && at.parent != 0 {
		at.depth = x.tree.depth(at.parent) + 1
	}
	fresh, duplicates := 0, uint64(0)
	i := 0
	for i < n {
		if x.replace(at, w, i) {
			x.counters.replaced.Add(1)
		}
		limit := x.repeats(r, n-i)
		if at.lost {
			i, fresh = 0, 0 // what was put went with the rest
		}
		if at.lost || limit == 0 {
			break
		}
		var got int
		j := i + 1
		switch old := w.old[i]; {
		case old == 0:
			for j < i+limit && w.old[j] == 0 {
				j++
			}
			got = x.tree.put(r.column, t, at.parent, at.depth+i, w.chains[i:j], w.cells[i:j], w.again[i:j])
		case old.on(t):
			w.cells[i] = old.cell()
			duplicates++
			at.parent = old.cell()
			i++
			continue
		default:
			// Held on another tier: it is where it is.
			for j < i+limit && w.old[j].cell() == old.cell()+cell(j-i) && !w.old[j].on(t) {
				j++
			}
			got = x.tree.shareAt(old.cell(), r.column, t, w.chains[i:j], w.cells[i:j], w.again[i:j])
			j = i + max(got, 1)
		}
		for k := i; k < i+got; k++ {
			if w.again[k] {
				r.repeat(x.room, w.cells[k], t)
			} else {
				fresh++
			}
		}
		i += got
		if got > 0 {
			at.parent = w.cells[i-1]
		}
		if i < j {
			break // no room
		}
	}
	at.depth += i
	at.full = at.full || i < n
	x.counters.duplicates.Add(duplicates)
	x.counted(r, t, fresh)
	return i
}

// replace takes away what the engine hash of block i stood for, when that was
// another prefix: the engine gave the same id to other content, and what it
// stood for before is gone, on every tier.
func (x *Index) replace(at *insertion, w *work, i int) bool {
	old := w.old[i]
	if old == 0 || x.tree.arena.chain(old.cell()) == w.chains[i] {
		return false
	}
	for t := range kvevent.Tier(kvevent.NumTiers) {
		if !old.on(t) || at.rank.forget(old.cell(), t) {
			continue
		}
		if !x.tree.take(at.rank.column, t, old.cell(), 1) {
			x.abandon(at.rank)
			at.lost = true
			return true
		}
		x.counted(at.rank, t, -1)
	}
	w.old[i] = 0
	if at.parent != 0 && !x.tree.holds(at.parent) {
		at.parent = 0
	}
	return true
}

// counted adds n to the entries of a worker on a tier. The tree's lock is held.
func (x *Index) counted(r *rank, t kvevent.Tier, n int) {
	r.count[t] += n
	r.total.Add(int64(n))
	x.tree.entries[t] += n
	x.counters.entries.Add(int64(n))
}

func (x *Index) remove(r *rank, ev *kvevent.Event) {
	w := x.work.Get().(*work)
	gone, unknown, spared := ev.Gone, uint64(0), uint64(0)
	for len(gone) > 0 {
		n := 0
		piece := gone[:min(len(gone), pieceBlocks)]
		for _, engine := range piece {
			p, ok := r.blocks.find(uint64(engine))
			if !ok || !held(p.value()).on(ev.Tier) {
				unknown++
				continue
			}
			if r.spare(engine, ev.Tier, ev.Copies) {
				spared++
				continue
			}
			h := held(p.value())
			w.cells[n] = h.cell()
			n++
			if h = h.drop(ev.Tier); h.tiers() == 0 {
				r.blocks.remove(p)
			} else {
				p.set(uint32(h))
			}
		}
		x.counters.removed.Add(uint64(n))
		gone = gone[len(piece):]
		if !x.unlink(r, ev.Tier, w.cells[:n]) {
			break // all of the worker is gone
		}
	}
	for _, t := range []*table{&r.blocks, &r.copies} {
		if t.sparse() {
			t.rebuild(x.room)
		}
	}
	x.counters.removed.Add(spared)
	x.counters.unknownRemovals.Add(unknown)
	x.work.Put(w)
}

// unlink takes blocks away from a worker, at most pieceBlocks. It returns false
// where there was no memory for that: then it has cleared the worker.
func (x *Index) unlink(r *rank, t kvevent.Tier, cells []cell) bool {
	if len(cells) == 0 {
		return true
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	x.tree.sweep()
	for i := 0; i < len(cells); {
		if r.forget(cells[i], t) {
			i++
			continue
		}
		n, from := 1, cells[i]
		if r.again.count == 0 {
			n, from = x.tree.stretch(cells[i:])
		}
		if !x.tree.take(r.column, t, from, n) {
			x.abandon(r)
			return false
		}
		x.counted(r, t, -n)
		i += n
	}
	return true
}

// repeats returns how many of the next n blocks may be ones that a worker holds
// by another engine hash, for all that there is memory.
func (x *Index) repeats(r *rank, n int) int {
	switch {
	case x.room.affords(r.again.growth(n)):
		return n
	case x.room.affords(r.again.growth(1)):
		return 1
	}
	return 0
}

// repeat counts one more engine hash for a block that the worker holds.
func (r *rank) repeat(room *budget, c cell, t kvevent.Tier) {
	if p, known, _ := r.again.insert(purse{room, true}, uint64(held(c).add(t)), 1); known {
		p.set(p.value() + 1)
	}
}

// forget takes one of several engine hashes away from a block, and reports
// whether there were several.
func (r *rank) forget(c cell, t kvevent.Tier) bool {
	p, ok := r.again.find(uint64(held(c).add(t)))
	if !ok {
		return false
	}
	if n := p.value(); n > 1 {
		p.set(n - 1)
	} else {
		r.again.remove(p)
	}
	return true
}
