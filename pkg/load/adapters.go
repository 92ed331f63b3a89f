package load

import "slices"

// AdapterState is what a worker has of a LoRA adapter.
type AdapterState uint8

// States of an adapter on a worker.
const (
	AdapterUnknown AdapterState = iota // nothing was scraped in the last minute
	AdapterAbsent                      // not loaded, and there is room
	AdapterWaiting                     // requests wait for it
	AdapterLoaded
	AdapterFull // not loaded, and another one would have to go first
)

// Adapter says what the worker has of a LoRA adapter, by its name.
func (w *Worker) Adapter(name string) AdapterState {
	a := w.adapters.Load()
	switch {
	case a == nil:
		return AdapterUnknown
	case slices.Contains(a.loaded, name):
		return AdapterLoaded
	case slices.Contains(a.waiting, name):
		return AdapterWaiting
	case a.full:
		return AdapterFull
	}
	return AdapterAbsent
}

// adapters are the LoRA adapters of a worker. They never change: there are a few
// per worker, which is why nothing is looked up.
type adapters struct {
	loaded, waiting []string
	full            bool
}

// next returns the adapters that metrics say, a itself if they are the same; nil
// when they say none. They may be those of metrics that are used again.
func (a *adapters) next(s *Scraped) *adapters {
	if s.Adapters == nil && s.WaitingAdapters == nil {
		return nil
	}
	full := s.MaxAdapters > 0 && len(s.Adapters) >= s.MaxAdapters
	if a != nil && a.full == full && slices.Equal(a.loaded, s.Adapters) && slices.Equal(a.waiting, s.WaitingAdapters) {
		return a
	}
	return &adapters{loaded: slices.Clone(s.Adapters), waiting: slices.Clone(s.WaitingAdapters), full: full}
}
