package extproc

import (
	"context"
	"errors"
	"maps"

	"github.com/warmpath/warmpath/pkg/admission"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// maxFairnessID bounds what is kept of a fairness id, which the client writes.
const maxFairnessID = 256

// SetObjectives takes the priorities of InferenceObjectives by name into use, those
// of the cluster. It keeps a copy.
func (s *Server) SetObjectives(priorities map[string]int) {
	clone := maps.Clone(priorities)
	s.objectives.Store(&clone)
}

// priority is that of the objective which a request names; 0 without one, and with
// one that does not exist. The policy's come before the cluster's.
func (s *Server) priority(r *routing, h *head) int {
	if h.objective == "" {
		return 0
	}
	if p, ok := r.Objectives[h.objective]; ok {
		return p
	}
	if known := s.objectives.Load(); known != nil {
		if p, ok := (*known)[h.objective]; ok {
			return p
		}
	}
	s.metrics.unknownObjectives.Inc()
	return 0
}

// place picks the workers of a request. While all are busy, it waits for them where
// it may.
//
// A request that could wait never passes one that waits already: it goes into the
// queue, too, which then looks whether there is room for it.
func (st *stream) place(ctx context.Context, w *work) error {
	s, r := st.srv, st.routing
	if w.req.PromptLess { // costs next to nothing
		return st.pick(w)
	}
	priority := s.priority(r, &st.head)
	err := pick.ErrBusy
	if !r.room.othersFirst(priority, &w.req.Subset) {
		err = st.pick(w)
	}
	if !errors.Is(err, pick.ErrBusy) {
		return err
	}
	switch {
	case priority < 0:
		err = errShed
	case r.room != nil:
		err = st.wait(ctx, w, priority)
	}
	s.metrics.queue.left(err)
	return err
}

func (st *stream) wait(ctx context.Context, w *work, priority int) error {
	r := st.routing.room
	id := st.head.fairness
	now := st.srv.cfg.Now()
	best := 0
	if r.Policy == admission.WSPT {
		best = st.routing.Picker.Best(&w.req, now, &w.scratch)
	}
	size := func(best int) int { return w.req.Tokens - best*st.routing.Layout.Size }
	waiter := &waiter{
		item: admission.Item{
			Priority: priority, Flow: id[:min(len(id), maxFairnessID)], Kind: kindOf(&w.req.Subset), Tokens: size(best),
			Bytes: st.body.len(), Arrival: now, Deadline: now.Add(r.MaxWait),
		},
		attempt: func(it *admission.Item) error {
			st.follow()
			err := st.pick(w)
			it.Tokens = size(st.decision.Best) // others may have computed some of it
			return err
		},
	}
	r.metrics.waiting.Inc()
	err := r.wait(ctx, waiter)
	r.metrics.waiting.Dec()
	if err == nil {
		r.metrics.waited.Observe(st.srv.cfg.Now().Sub(now).Seconds())
	}
	return err
}

// follow lets a request that waits go on under the routing of new ones, so that a bound
// that was lifted helps it, too. It stays where it is when the new one would have read the
// prompt in another way.
func (st *stream) follow() {
	s := st.srv
	if s.routing.Load() == st.routing {
		return
	}
	other := s.acquire()
	if other.readsAs(st.routing) {
		st.routing, other = other, st.routing
	}
	other.release()
}

// pick picks now.
func (st *stream) pick(w *work) (err error) {
	s, r := st.srv, st.routing
	now := s.cfg.Now()
	w.req.Avoid = nil
	if w.avoid = s.failures.avoid(w.avoid[:0], r.Picker.Fleet(), now); len(w.avoid) > 0 {
		w.req.Avoid = w.avoid
	}
	st.sent = now
	var pool *fleet.Snapshot
	if r.Fallback > 0 {
		pool = r.Picker.Fleet()
	}
	st.decision, err = r.Picker.Pick(&w.req, now, s.cfg.Random, &w.scratch)
	// Candidates are positions in the pool: one that was replaced meanwhile is of no use.
	if err == nil && pool != nil && pool == r.Picker.Fleet() {
		st.chooseFallback(w, pool, r.Fallback)
	}
	return err
}

// loadFell tells those who wait that there may be room.
func (s *Server) loadFell() { s.routing.Load().room.fell() }
