package simengine

import (
	"slices"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// node is one full block of a request's tokens: where it is in the tree of all
// prefixes, and the content hash that is announced for it.
type node struct {
	chain block.Chain
	hash  block.Hash
}

// stored is a block that has just entered the cache.
type stored struct {
	block     kvevent.Block
	parent    kvevent.EngineHash
	hasParent bool
}

// entry is a block in the cache. Entries that no request uses are in the list of
// victims, oldest first.
type entry struct {
	node
	slot       int // physical block number
	refs       int // requests that use it
	prev, next *entry
}

// cache is a KV cache in blocks: blocks in use are pinned, the others stay until
// their room is needed and leave in least-recently-used order, within one request
// the last block first. A block therefore never outlives its parent.
//
// It is not safe for concurrent use and does no I/O.
type cache struct {
	capacity int
	secret   uint64
	entries  map[block.Chain]*entry
	victims  entry // ring; next is evicted first
	unpinned int   // length of the ring
	reserved int   // rooms promised to leases and not filled yet
	free     []int // slots without an entry
}

// lease is one request's hold on the cache: a path from the root, of which the
// first held blocks are pinned and the rest have room reserved.
type lease struct {
	path     []node
	held     []*entry
	reserved int
}

// newCache returns an empty cache of capacity blocks. The secret makes engine
// hashes differ between processes, so that nobody can rely on their equality.
func newCache(capacity int, secret uint64) *cache {
	c := &cache{capacity: capacity, secret: secret, entries: make(map[block.Chain]*entry)}
	c.victims.prev, c.victims.next = &c.victims, &c.victims
	c.free = make([]int, capacity)
	for i := range c.free {
		c.free[i] = capacity - 1 - i
	}
	return c
}

// engineHash is the block's opaque id on the wire. The mix is a bijection: two
// chains never share an id.
func (c *cache) engineHash(chain block.Chain) kvevent.EngineHash {
	x := uint64(chain) ^ c.secret
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return kvevent.EngineHash(x ^ x>>31)
}

// match returns how many blocks of path are held, counted from its start.
func (c *cache) match(path []node) int {
	for i, n := range path {
		if _, ok := c.entries[n.chain]; !ok {
			return i
		}
	}
	return len(path)
}

// acquire pins what the cache holds of path and reserves room for the rest,
// evicting as much as that needs. It changes nothing and returns false when the
// blocks in use leave too little room. The lease owns path from here on.
func (c *cache) acquire(path []node) (l *lease, evicted []kvevent.EngineHash, ok bool) {
	n := c.match(path)
	evictable := c.unpinned
	for _, p := range path[:n] {
		if c.entries[p.chain].refs == 0 {
			evictable--
		}
	}
	need := len(path) - n
	if need > c.room()+evictable {
		return nil, nil, false
	}
	l = &lease{path: path, held: make([]*entry, 0, len(path)), reserved: need}
	for _, p := range path[:n] {
		l.held = append(l.held, c.pin(c.entries[p.chain]))
	}
	evicted = c.makeRoom(need)
	c.reserved += need
	return l, evicted, true
}

// commit puts the blocks of the lease that were not held into the cache: their
// tokens have been computed or received. It returns those that are new.
func (c *cache) commit(l *lease) []stored {
	var out []stored
	c.reserved -= l.reserved
	l.reserved = 0
	for _, n := range l.path[len(l.held):] {
		e, ok := c.entries[n.chain]
		if ok {
			c.pin(e)
		} else {
			e = c.insert(n)
			out = append(out, c.announce(l, e))
		}
		l.held = append(l.held, e)
	}
	return out
}

// extend adds one computed block to the end of a committed lease. It returns
// false and changes nothing when there is no room.
func (c *cache) extend(l *lease, n node) (out []stored, evicted []kvevent.EngineHash, ok bool) {
	e, found := c.entries[n.chain]
	switch {
	case found:
		c.pin(e)
	case c.room() < 1 && c.unpinned == 0:
		return nil, nil, false
	default:
		evicted = c.makeRoom(1)
		e = c.insert(n)
		out = []stored{c.announce(l, e)}
	}
	l.path = append(l.path, n)
	l.held = append(l.held, e)
	return out, evicted, true
}

// release ends a lease, committed or not. The last block becomes a victim before
// the ones in front of it.
func (c *cache) release(l *lease) {
	c.reserved -= l.reserved
	l.reserved = 0
	for _, e := range slices.Backward(l.held) {
		e.refs--
		if e.refs > 0 {
			continue
		}
		e.prev, e.next = c.victims.prev, &c.victims
		e.prev.next, e.next.prev = e, e
		c.unpinned++
	}
	l.held = nil
}

// clear drops every block. It returns false and drops nothing while any request
// uses the cache, as vLLM does.
func (c *cache) clear() bool {
	if c.pinned() > 0 || c.reserved > 0 {
		return false
	}
	for c.unpinned > 0 {
		c.evict()
	}
	return true
}

// pinned returns the number of blocks in use by requests.
func (c *cache) pinned() int { return len(c.entries) - c.unpinned }

func (c *cache) room() int { return c.capacity - len(c.entries) - c.reserved }

func (c *cache) pin(e *entry) *entry {
	if e.refs == 0 {
		e.prev.next, e.next.prev = e.next, e.prev
		e.prev, e.next = nil, nil
		c.unpinned--
	}
	e.refs++
	return e
}

func (c *cache) insert(n node) *entry {
	last := len(c.free) - 1
	e := &entry{node: n, slot: c.free[last], refs: 1}
	c.free = c.free[:last]
	c.entries[n.chain] = e
	return e
}

// announce describes e as the block that follows the last held one.
func (c *cache) announce(l *lease, e *entry) stored {
	s := stored{block: kvevent.Block{Engine: c.engineHash(e.chain), Hash: e.hash}}
	if n := len(l.held); n > 0 {
		s.parent, s.hasParent = c.engineHash(l.held[n-1].chain), true
	}
	return s
}

func (c *cache) makeRoom(n int) []kvevent.EngineHash {
	var out []kvevent.EngineHash
	for c.room() < n {
		out = append(out, c.evict())
	}
	return out
}

// evict drops the oldest block that no request uses.
func (c *cache) evict() kvevent.EngineHash {
	e := c.victims.next
	e.prev.next, e.next.prev = e.next, e.prev
	c.unpinned--
	delete(c.entries, e.chain)
	c.free = append(c.free, e.slot)
	return c.engineHash(e.chain)
}
