package index

import "github.com/warmpath/warmpath/pkg/kvevent"

// copies counts, tier by tier, the copies that a worker has of one block beyond
// the first. An engine stores a hash once more for every block of memory that
// comes to hold it, and removes each by itself, so the block is there until the
// last one goes (engines.md 1.1). 0 is none anywhere.
type copies uint32

// deviceCopies and lowerCopies are the bits of a count, which goes no further
// when they are full: the block is then given up too early, never too late. On
// the device as many copies can come about as a step of the engine begins
// prompts that are alike; tiers below look a block up before they take it.
const (
	deviceCopies = 14
	lowerCopies  = 6
)

// field is where the count of a tier lies, and the most that fits.
func field(t kvevent.Tier) (shift int, most copies) {
	if t == kvevent.Device {
		return 0, 1<<deviceCopies - 1
	}
	return deviceCopies + lowerCopies*(int(t)-1), 1<<lowerCopies - 1
}

func (c copies) on(t kvevent.Tier) copies {
	shift, most := field(t)
	return c >> shift & most
}

// add counts one more on a tier.
func (c copies) add(t kvevent.Tier) copies {
	shift, most := field(t)
	if c.on(t) == most {
		return c
	}
	return c + 1<<shift
}

// drop counts one less on a tier that has one.
func (c copies) drop(t kvevent.Tier) copies {
	shift, _ := field(t)
	return c - 1<<shift
}

// none forgets those on a tier.
func (c copies) none(t kvevent.Tier) copies {
	shift, most := field(t)
	return c &^ (most << shift)
}

// copied counts one more copy of a block that the worker holds on a tier. Where
// there is no memory for that, the first removal takes the block: it returns
// false, and blocks may come that follow one not known here.
func (r *rank) copied(room *budget, engine kvevent.EngineHash, t kvevent.Tier) bool {
	p, known, ok := r.copies.insert(purse{room, false}, uint64(engine), uint32(copies(0).add(t)))
	if known {
		p.set(uint32(copies(p.value()).add(t)))
	}
	r.lossy = r.lossy || !ok
	return ok
}

// spare takes one copy of a block away from a worker, and reports whether another
// is left on the tier. Of a worker that counts copies itself all go at once.
func (r *rank) spare(engine kvevent.EngineHash, t kvevent.Tier, each bool) bool {
	p, ok := r.copies.find(uint64(engine))
	if !ok {
		return false
	}
	c := copies(p.value())
	left := each && c.on(t) > 0
	if left {
		c = c.drop(t)
	} else {
		c = c.none(t)
	}
	if c == 0 {
		r.copies.remove(p)
	} else {
		p.set(uint32(c))
	}
	return left
}

// single forgets all copies of a block.
func (r *rank) single(engine uint64) {
	if p, ok := r.copies.find(engine); ok {
		r.copies.remove(p)
	}
}
