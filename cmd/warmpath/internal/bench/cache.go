package bench

import (
	"container/list"
	"slices"

	"github.com/warmpath/warmpath/pkg/block"
)

// cache is a worker's KV cache: so many blocks, the least recently used leaves
// first. Of one prompt the last block counts as used first, so that no block goes
// before those that follow it.
type cache struct {
	capacity int
	order    *list.List // of block.Chain, the next victim in front
	places   map[block.Chain]*list.Element
}

func newCache(capacity int) *cache {
	return &cache{capacity: capacity, order: list.New(), places: map[block.Chain]*list.Element{}}
}

// held counts the blocks of a prompt that are in the cache, from its start.
func (c *cache) held(prompt []block.Chain) int {
	for i, b := range prompt {
		if c.places[b] == nil {
			return i
		}
	}
	return len(prompt)
}

// use puts a prompt that fits into the cache, and returns what had to leave, in
// order.
func (c *cache) use(prompt []block.Chain) (gone []block.Chain) {
	for _, b := range slices.Backward(prompt) {
		if place := c.places[b]; place != nil {
			c.order.MoveToBack(place)
		} else {
			c.places[b] = c.order.PushBack(b)
		}
	}
	for c.order.Len() > c.capacity {
		b := c.order.Remove(c.order.Front()).(block.Chain)
		delete(c.places, b)
		gone = append(gone, b)
	}
	return gone
}
