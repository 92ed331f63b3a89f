package interop

import (
	"fmt"
	"maps"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// Ledger is what events say that each worker rank holds: a slow, obvious twin of
// the prefix index, for the tiers that a worker has itself.
type Ledger struct {
	Held    map[fleet.Key]map[block.Chain]bool // on the device
	Host    map[fleet.Key]map[block.Chain]bool // in host memory; only of ranks that said something of it
	Events  map[string]int                     // events per subject
	Removed int                                // blocks that removal events took away
	Lost    []string                           // what could not be applied; empty when all is well

	chains map[fleet.Key]map[kvevent.EngineHash]block.Chain
	lastID map[fleet.Key]uint64
}

// ReadLedger applies messages in order.
func ReadLedger(events []Event) *Ledger {
	l := &Ledger{
		Held:   map[fleet.Key]map[block.Chain]bool{},
		Host:   map[fleet.Key]map[block.Chain]bool{},
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
	var held map[block.Chain]bool
	switch e.Tier {
	case kvevent.Device:
		held = l.Held[key]
	case kvevent.Host:
		if l.Host[key] == nil {
			l.Host[key] = map[block.Chain]bool{}
		}
		held = l.Host[key]
	default:
		l.lose("worker %s: event %d is about tier %s", key, e.ID, e.Tier)
		return
	}
	switch e.Kind {
	case kvevent.Stored:
		l.store(key, held, e)
	case kvevent.Removed:
		l.Removed += len(e.Gone)
		for _, engine := range e.Gone {
			delete(held, l.chains[key][engine])
		}
	case kvevent.Cleared:
		l.lose("worker %s: event %d clears all", key, e.ID)
	}
}

// holds says whether a rank holds the block that its engine calls so, on any tier.
func (l *Ledger) holds(key fleet.Key, engine kvevent.EngineHash) bool {
	chain, known := l.chains[key][engine]
	return known && (l.Held[key][chain] || l.Host[key][chain])
}

func (l *Ledger) store(key fleet.Key, held map[block.Chain]bool, e *kvevent.Event) {
	if e.HasParent && !l.holds(key, e.Parent) {
		l.lose("worker %s: event %d stores after a block it does not hold", key, e.ID)
		return
	}
	chain := l.chains[key][e.Parent]
	for i, b := range e.Blocks {
		if i == 0 && !e.HasParent {
			chain = block.Root(b.Hash)
		} else {
			chain = chain.Next(b.Hash)
		}
		l.chains[key][b.Engine] = chain
		held[chain] = true
	}
}

// Holders returns what ranks hold that hold something.
func Holders(held map[fleet.Key]map[block.Chain]bool) map[fleet.Key]map[block.Chain]bool {
	some := maps.Clone(held)
	maps.DeleteFunc(some, func(_ fleet.Key, m map[block.Chain]bool) bool { return len(m) == 0 })
	return some
}

// Chains returns the chain up to every full block of a prompt.
func Chains(prompt []uint32, blockSize int) []block.Chain {
	return block.AppendChains(nil, block.Layout{Size: blockSize}.AppendHashes(nil, prompt, block.NewSeed("", "")))
}
