package load

// Company says whether other requests of this picker are under way on the workers of a
// reservation: whether others are to be computed on the prefill worker, and whether the
// decode worker has others. Of a reservation that was released it says false.
func (r *Reservation) Company() (prefill, decode bool) {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.state == released {
		return false, false
	}
	prompts := r.prefill.own.prompts
	if r.state == prefilling && r.tokens > 0 {
		prompts--
	}
	return prompts > 0, r.decode.own.requests > 1
}
