package interop

import (
	"fmt"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// Ledger is what events say that each worker rank holds: a slow, obvious twin of
// the prefix index, for the device tier.
type Ledger struct {
	Held    map[fleet.Key]map[block.Chain]bool
	Events  map[string]int // events per subject
	Removed int            // blocks that removal events took away
	Lost    []string       // what could not be applied; empty when all is well

	chains map[fleet.Key]map[kvevent.EngineHash]block.Chain
	lastID map[fleet.Key]uint64
}

// ReadLedger applies messages in order.
func ReadLedger(events []Event) *Ledger {
	l := &Ledger{
		Held:   map[fleet.Key]map[block.Chain]bool{},
		Events: map[string]int{},
		chains: map[fleet.Key]map[kvevent.EngineHash]block.Chain{},
		lastID: map[fleet.Key]uint64{},
	}
	var d dynamo.Decoder
	for _, m := range events {
		subject, err := dynamo.ParseSubject(m.Subject)
		if err != nil {
			l.lose("%v", err)
			continue
		}
		if _, err := d.Decode(m.Data, subject.Scope, func(e *kvevent.Event) {
			l.Events[m.Subject]++
			l.apply(e)
		}); err != nil {
			l.lose("message on %s: %v", m.Subject, err)
		}
	}
	if s := d.Stats(); s.BadEvents+s.UnknownFields+s.UnknownTiers+s.EmptyStores > 0 {
		l.lose("the decoder skipped something: %+v, last: %v", s, d.LastSkip())
	}
	return l
}

func (l *Ledger) lose(format string, args ...any) {
	l.Lost = append(l.Lost, fmt.Sprintf(format, args...))
}

func (l *Ledger) apply(e *kvevent.Event) {
	key := fleet.Key{ID: e.WorkerID, Rank: e.Rank}
	if l.Held[key] == nil {
		l.Held[key] = map[block.Chain]bool{}
		l.chains[key] = map[kvevent.EngineHash]block.Chain{}
	}
	if want := l.lastID[key] + 1; e.ID != want {
		l.lose("worker %s: event %d where %d was due", key, e.ID, want)
	}
	l.lastID[key] = e.ID
	if e.Tier != kvevent.Device {
		l.lose("worker %s: event %d is about tier %s", key, e.ID, e.Tier)
		return
	}
	switch e.Kind {
	case kvevent.Stored:
		l.store(key, e)
	case kvevent.Removed:
		l.Removed += len(e.Gone)
		for _, engine := range e.Gone {
			delete(l.Held[key], l.chains[key][engine])
			delete(l.chains[key], engine)
		}
	case kvevent.Cleared:
		l.lose("worker %s: event %d clears all", key, e.ID)
	}
}

func (l *Ledger) store(key fleet.Key, e *kvevent.Event) {
	chain, known := l.chains[key][e.Parent]
	if e.HasParent && !known {
		l.lose("worker %s: event %d stores after a block it does not hold", key, e.ID)
		return
	}
	for i, b := range e.Blocks {
		if i == 0 && !e.HasParent {
			chain = block.Root(b.Hash)
		} else {
			chain = chain.Next(b.Hash)
		}
		l.chains[key][b.Engine] = chain
		l.Held[key][chain] = true
	}
}

// Chains returns the chain up to every full block of a prompt.
func Chains(prompt []uint32, blockSize int) []block.Chain {
	return block.AppendChains(nil, block.Layout{Size: blockSize}.AppendHashes(nil, prompt, block.NewSeed("", "")))
}
