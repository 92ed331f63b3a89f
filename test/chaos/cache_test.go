package chaos

import (
	"math/rand/v2"
	"slices"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// document is a prompt as blocks: their contents and the chains up to them.
type document struct {
	hashes []block.Hash
	chains []block.Chain
}

// newDocuments makes prompts that share beginnings: a few system prompts, some
// branches of each, and tails.
func newDocuments(rng *rand.Rand) []document {
	const systems, branches, tails = 3, 3, 3
	run := func(n int) []block.Hash {
		hashes := make([]block.Hash, n)
		for i := range hashes {
			hashes[i] = block.Hash(rng.Uint64())
		}
		return hashes
	}
	var list []document
	for range systems {
		system := run(8)
		for range branches {
			branch := run(4)
			for range tails {
				hashes := slices.Concat(system, branch, run(4+rng.IntN(16)))
				list = append(list, document{hashes, block.AppendChains(nil, hashes)})
			}
		}
	}
	return list
}

// cache is what a rank's engine holds: the truth that the index is held against.
type cache struct {
	key       fleet.Key
	rng       *rand.Rand
	documents []document
	tiers     [kvevent.NumTiers]map[block.Chain]bool
}

func newCache(key fleet.Key, rng *rand.Rand, documents []document) *cache {
	c := &cache{key: key, rng: rng, documents: documents}
	c.clear()
	return c
}

func (c *cache) clear() {
	for t := range c.tiers {
		c.tiers[t] = map[block.Chain]bool{}
	}
}

// holds says whether a block is held on any tier.
func (c *cache) holds(chain block.Chain) bool {
	return slices.ContainsFunc(c.tiers[:], func(held map[block.Chain]bool) bool { return held[chain] })
}

// depth is what the cache has of a prompt, tier after tier.
func (c *cache) depth(prompt []block.Chain) index.Depth {
	var n [kvevent.NumTiers]int
	at := 0
	for t, held := range c.tiers {
		for at < len(prompt) && held[prompt[at]] {
			at++
			n[t]++
		}
	}
	return index.Depth{Device: n[kvevent.Device], Host: n[kvevent.Host], Disk: n[kvevent.Disk], External: n[kvevent.External]}
}

// engineHash is the engine's id of a block: other for each rank.
func (c *cache) engineHash(chain block.Chain) kvevent.EngineHash {
	h := uint64(chain) ^ (c.key.ID+1)*0x9e3779b97f4a7c15 ^ uint64(c.key.Rank+1)*0xbf58476d1ce4e5b9
	return kvevent.EngineHash(h * 0x94d049bb133111eb)
}

// change makes something happen in the cache and returns the event about it,
// without an id.
func (c *cache) change() kvevent.Event {
	for {
		d := &c.documents[c.rng.IntN(len(c.documents))]
		var ev kvevent.Event
		var ok bool
		switch n := c.rng.IntN(200); {
		case n == 0:
			c.clear()
			ev, ok = kvevent.Event{Kind: kvevent.Cleared}, true
		case n < 100:
			ev, ok = c.store(d)
		case n < 130:
			ev, ok = c.offload(d)
		case n < 180:
			ev, ok = c.remove(d, c.rng.IntN(len(d.chains)), 1+c.rng.IntN(12))
		default: // from the end, as an engine evicts
			n := 1 + c.rng.IntN(12)
			ev, ok = c.remove(d, max(0, len(d.chains)-n), n)
		}
		if ok {
			return ev
		}
	}
}

// changeOne is change for a flood: one block comes or goes.
func (c *cache) changeOne() kvevent.Event {
	d := &c.documents[c.rng.IntN(len(c.documents))]
	for i, chain := range d.chains {
		if !c.holds(chain) {
			return c.put(d, i, i+1, kvevent.Device)
		}
	}
	for {
		if ev, ok := c.remove(d, len(d.chains)-1, 1); ok {
			return ev
		}
	}
}

// store computes a prompt up to somewhere: the first blocks of it that are not
// held are stored now.
func (c *cache) store(d *document) (kvevent.Event, bool) {
	from, end := 0, 1+c.rng.IntN(len(d.chains))
	for from < end && c.holds(d.chains[from]) {
		from++
	}
	to := from
	for to < end && !c.holds(d.chains[to]) {
		to++
	}
	return c.put(d, from, to, kvevent.Device), to > from
}

// offload copies a block of the device to the host.
func (c *cache) offload(d *document) (kvevent.Event, bool) {
	i := c.rng.IntN(len(d.chains))
	if !c.tiers[kvevent.Device][d.chains[i]] || c.tiers[kvevent.Host][d.chains[i]] || i > 0 && !c.holds(d.chains[i-1]) {
		return kvevent.Event{}, false
	}
	return c.put(d, i, i+1, kvevent.Host), true
}

// put stores the blocks from one place of a prompt to another. What is before
// them is held.
func (c *cache) put(d *document, from, to int, tier kvevent.Tier) kvevent.Event {
	ev := kvevent.Event{Kind: kvevent.Stored, Tier: tier}
	if from > 0 {
		ev.Parent, ev.HasParent = c.engineHash(d.chains[from-1]), true
	}
	if tier != kvevent.Device {
		ev.Start, ev.HasStart = uint32(from), true
	}
	for i := from; i < to; i++ {
		c.tiers[tier][d.chains[i]] = true
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: c.engineHash(d.chains[i]), Hash: d.hashes[i]})
	}
	return ev
}

// remove drops what is held, on one tier, of n blocks of a prompt. It may leave a
// hole.
func (c *cache) remove(d *document, from, n int) (kvevent.Event, bool) {
	ev := kvevent.Event{Kind: kvevent.Removed, Tier: kvevent.Tier(c.rng.IntN(2))}
	for _, chain := range d.chains[from:min(from+n, len(d.chains))] {
		if c.tiers[ev.Tier][chain] {
			delete(c.tiers[ev.Tier], chain)
			ev.Gone = append(ev.Gone, c.engineHash(chain))
		}
	}
	return ev, len(ev.Gone) > 0
}
