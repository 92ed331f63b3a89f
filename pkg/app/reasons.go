package app

import (
	"maps"
	"sync"
)

// reasons counts by reason, of which there are a few.
type reasons struct {
	mu sync.Mutex
	by map[string]uint64
}

func (r *reasons) add(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]uint64{}
	}
	r.by[reason]++
}

func (r *reasons) all() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.by)
}
