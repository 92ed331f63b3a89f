package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// historySize is how many events of a rank its worker can tell again. When it is
// asked for older ones it tells all that it holds.
const historySize = 200

// remember keeps an event to be told again. Its caller holds the worker's lock.
func (r *rank) remember(ev kvevent.Event) {
	if len(r.history) == historySize {
		r.history = r.history[1:]
	}
	r.history = append(r.history, ev)
}

// Workers, CanAsk and Ask make a crew the workers that a plane asks what they hold
// (dynamo.md 1.9). They answer whatever happens to NATS.
func (c *crew) Workers() (keys []fleet.Key, ok bool) {
	for _, w := range c.workers {
		for _, r := range w.ranks {
			keys = append(keys, r.key)
		}
	}
	return keys, true
}

// CanAsk is true.
func (c *crew) CanAsk(fleet.Key) bool { return true }

// Ask answers with events that were told before, or with all that a rank holds.
func (c *crew) Ask(_ context.Context, k fleet.Key, from uint64) (eventplane.Recovered, error) {
	for _, w := range c.workers {
		w.mu.Lock()
		for _, r := range w.ranks {
			if r.key == k {
				defer w.mu.Unlock()
				return r.answer(from), nil
			}
		}
		w.mu.Unlock()
	}
	return eventplane.Recovered{}, fmt.Errorf("no worker %v", k)
}

func (r *rank) answer(from uint64) eventplane.Recovered {
	if from > r.cleared && from <= r.last && len(r.history) > 0 && r.history[0].ID <= from {
		return eventplane.Recovered{Events: slices.Clone(r.history[from-r.history[0].ID:]), LastID: r.last}
	}
	return eventplane.Recovered{All: true, Events: r.cache.tell(), LastID: r.last}
}

// tell returns events that make up all that is held. What is not held, with
// something held behind it, is stored and removed again.
func (c *cache) tell() (events []kvevent.Event) {
	holes := kvevent.Event{WorkerID: c.key.ID, Rank: c.key.Rank, Kind: kvevent.Removed}
	told := map[block.Chain]bool{}
	for i := range c.documents {
		d := &c.documents[i]
		for n, chain := range slices.Backward(d.chains) {
			if c.holds(chain) {
				events = append(events, c.path(d, n+1, told, &holes)...)
				break
			}
		}
	}
	return append(events, holes)
}

func (c *cache) path(d *document, n int, told map[block.Chain]bool, holes *kvevent.Event) (events []kvevent.Event) {
	for i, chain := range d.chains[:n] {
		if told[chain] {
			continue
		}
		told[chain] = true
		store := func(t kvevent.Tier) {
			ev := kvevent.Event{WorkerID: c.key.ID, Rank: c.key.Rank, Kind: kvevent.Stored, Tier: t}
			if i > 0 {
				ev.Parent, ev.HasParent = c.engineHash(d.chains[i-1]), true
			}
			ev.Blocks = []kvevent.Block{{Engine: c.engineHash(chain), Hash: d.hashes[i]}}
			events = append(events, ev)
		}
		for t := range c.tiers {
			if c.tiers[t][chain] {
				store(kvevent.Tier(t))
			}
		}
		if !c.holds(chain) {
			store(kvevent.Device)
			holes.Gone = append(holes.Gone, c.engineHash(chain))
		}
	}
	return events
}

// TestRecovery makes trouble of all kinds where workers can be asked: soon after,
// all is known of all of them.
func TestRecovery(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*rig){
		"killed":        func(r *rig) { r.killServer() },
		"cut":           func(r *rig) { r.cutConnection(0); r.freezeServer(); r.cutConnection(1) },
		"slow consumer": func(r *rig) { r.slowDown() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trouble(newRig(t, serverOptions{recovers: true}))
		})
	}
}
