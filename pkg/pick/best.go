package pick

import "time"

// Best is how many blocks of a prompt the best worker of the pool need not compute.
// It decides nothing, so that a request can be told how large it is before it has a
// worker.
func (p *Picker) Best(req *Request, now time.Time, s *Scratch) int {
	s.look(p, req, now)
	return max(s.best, s.bestDecode)
}
