package policy_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// cache is the KV cache of one worker: blocks by id, of which the least recently
// used goes first, and of one prompt the last block before the others. Blocks that
// requests use stay.
type cache struct {
	capacity, size int
	held           []bool
	users          []int32
	prev, next     []int32 // the blocks without users, least recently used first; the last element is the end of the ring
}

func newCache(capacity, distinct int) *cache {
	c := &cache{
		capacity: capacity, held: make([]bool, distinct), users: make([]int32, distinct),
		prev: make([]int32, distinct+1), next: make([]int32, distinct+1),
	}
	c.prev[distinct], c.next[distinct] = int32(distinct), int32(distinct)
	return c
}

// match is how many blocks from the start of a prompt are held.
func (c *cache) match(ids []int32) int {
	for i, id := range ids {
		if !c.held[id] {
			return i
		}
	}
	return len(ids)
}

// use makes room for a prompt and marks its blocks as used. It returns how many
// were held, and which others had to go. A prompt that finds too few blocks without
// users is taken in all the same.
func (c *cache) use(ids []int32, gone []int32) (hit int, evicted []int32) {
	hit = c.match(ids)
	for _, id := range ids[:hit] {
		if c.users[id]++; c.users[id] == 1 {
			c.unlink(id)
		}
	}
	end := int32(len(c.held))
	for _, id := range ids[hit:] {
		for c.size >= c.capacity && c.next[end] != end {
			out := c.next[end]
			c.unlink(out)
			c.held[out] = false
			c.size--
			gone = append(gone, out)
		}
		c.held[id] = true
		c.users[id]++
		c.size++
	}
	return hit, gone
}

// release ends what use began. The last block is the first to go later.
func (c *cache) release(ids []int32) {
	end := int32(len(c.held))
	for _, id := range slices.Backward(ids) {
		if c.users[id]--; c.users[id] == 0 {
			last := c.prev[end]
			c.prev[id], c.next[id] = last, end
			c.next[last], c.prev[end] = id, id
		}
	}
}

func (c *cache) unlink(id int32) {
	c.next[c.prev[id]], c.prev[c.next[id]] = c.next[id], c.prev[id]
}

// plainCache is cache, slow and obvious.
type plainCache struct {
	capacity int
	idle     []int32 // least recently used first
	used     map[int32]int
}

func (p *plainCache) holds(id int32) bool { return p.used[id] > 0 || slices.Contains(p.idle, id) }

func (p *plainCache) use(ids []int32) (hit int, gone []int32) {
	for hit < len(ids) && p.holds(ids[hit]) {
		hit++
	}
	for _, id := range ids[:hit] {
		p.used[id]++
		p.idle = slices.DeleteFunc(p.idle, func(o int32) bool { return o == id })
	}
	for _, id := range ids[hit:] {
		for len(p.idle)+len(p.used) >= p.capacity && len(p.idle) > 0 {
			gone = append(gone, p.idle[0])
			p.idle = p.idle[1:]
		}
		p.used[id]++
	}
	return hit, gone
}

func (p *plainCache) release(ids []int32) {
	for _, id := range slices.Backward(ids) {
		if p.used[id]--; p.used[id] == 0 {
			delete(p.used, id)
			p.idle = append(p.idle, id)
		}
	}
}

func TestCacheIsLikeItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const distinct = 31 // a tree: the block before i is (i-1)/2
		capacity := rapid.IntRange(1, 20).Draw(t, "capacity")
		c, twin := newCache(capacity, distinct), &plainCache{capacity: capacity, used: map[int32]int{}}
		var running [][]int32
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(running) > 0 && rapid.Bool().Draw(t, "end one") {
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				c.release(running[i])
				twin.release(running[i])
				running = slices.Delete(running, i, i+1)
				continue
			}
			var ids []int32
			for id := int32(rapid.IntRange(0, distinct-1).Draw(t, "leaf")); ; id = (id - 1) / 2 {
				ids = append(ids, id)
				if id == 0 {
					break
				}
			}
			slices.Reverse(ids)
			hit, gone := c.use(ids, nil)
			wantHit, wantGone := twin.use(ids)
			if hit != wantHit || !slices.Equal(gone, wantGone) {
				t.Fatalf("prompt %v: %d held, %v gone; want %d, %v", ids, hit, gone, wantHit, wantGone)
			}
			running = append(running, ids)
			for id := range int32(distinct) {
				if c.held[id] != twin.holds(id) {
					t.Fatalf("block %d: held %v, want %v", id, c.held[id], twin.holds(id))
				}
			}
			if c.size != len(twin.idle)+len(twin.used) {
				t.Fatalf("%d blocks, want %d", c.size, len(twin.idle)+len(twin.used))
			}
		}
	})
}
