package app

import (
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kube"
)

// Observe says how routing goes, for the status of a policy.
func (a *App) Observe() kube.Observation {
	g, pool, c := a.current.Load(), a.fleet(), a.extproc.Counts()
	heard, strange := a.totals.events()
	o := kube.Observation{
		MissingFiles:    errorsOf(g.spec.CheckFiles()),
		Events:          g.events.state(),
		Decisions:       c.Decisions,
		Prompts:         c.Prompts,
		KnownPrompts:    c.KnownPrompts,
		TotalBlocks:     c.TotalBlocks,
		MatchedBlocks:   c.MatchedBlocks,
		BestBlocks:      c.BestBlocks,
		FoundPrompts:    c.FoundPrompts,
		ServedElsewhere: c.ServedElsewhere,
		IndexedBlocks:   g.events.blocksByRole(pool),
		StrangerEvents:  strange,
	}
	o.Events.Received = heard
	o.Events.Disabled = g.spec.EventPlane.Disabled || connects(g.spec) && !hears(g.spec)
	o.Events.NoServer = !o.Events.Disabled && !connects(g.spec)
	if g.tokenizer != nil {
		if err := g.tokenizer.ready(); err != nil {
			o.TokenizerWaits = g.tokenizer.inProcess.waitsFor()
		}
	}
	return o
}

// errorsOf takes a joined error apart.
func errorsOf(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// state is that of the connection.
func (e *events) state() (s kube.EventState) {
	if e.plane == nil {
		return s
	}
	s.Connected, s.Warming = e.plane.Connected(), e.plane.Warming()
	if err := e.plane.LastError(); err != nil && !s.Connected {
		s.LastError = err.Error()
	}
	return s
}

// blocksByRole counts the blocks of the workers in the pool.
func (e *events) blocksByRole(pool *fleet.Snapshot) (blocks [3]int) {
	for i := range pool.Workers {
		w := &pool.Workers[i]
		for _, n := range e.index.Held(w.Key) {
			blocks[w.Role] += n
		}
	}
	return blocks
}
