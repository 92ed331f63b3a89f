package eventplane

import "sync"

// Siblings are the planes of one process, of which one replaces another. What they
// tell others is in the process's own books: none of them counts it as foreign. The
// zero value is ready.
type Siblings struct {
	mu      sync.RWMutex
	routers map[uint64]bool
}

// join notes the router id of a plane. A process has few planes in its life, and
// words of one that has ended may still be under way: none is forgotten.
func (s *Siblings) join(router uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routers == nil {
		s.routers = map[uint64]bool{}
	}
	s.routers[router] = true
}

func (s *Siblings) have(router uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.routers[router]
}
