package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// rig is a server, workers that publish to it, and a plane that hears them
// through a proxy.
type rig struct {
	t       *testing.T
	server  *server
	proxy   *proxy
	witness *witness
	picker  *picker
	crew    *crew

	dropped uint64        // by NATS in front of the plane, until the last step
	late    time.Duration // the longest that a loss was not known after the worker's next event was taken in
}

// newRig returns a rig whose workers publish.
func newRig(t *testing.T, o serverOptions) *rig {
	t.Helper()
	r := &rig{t: t, server: startServer(t, o), witness: newWitness()}
	r.proxy = startProxy(t, strings.TrimPrefix(r.server.url(), "nats://"), r.witness)
	r.crew = startCrew(t, r.server.url(), r.witness, *seed)
	r.picker = startPicker(t, r.proxy.url(), r.crew, o)
	r.settle()
	r.crew.goOn(300)
	return r
}

// step is what a fault did.
type step struct {
	lost    uint64    // events, by the transport
	gone    []uint64  // serial numbers of their messages
	dropped uint64    // messages, by NATS because the plane was slow
	tainted []*worker // workers of which the plane may not know the truth
}

// settle ends a step: every rank publishes until a message of it goes through,
// then plane and index must be as the ledger says. Afterwards workers publish.
func (r *rig) settle() step {
	r.t.Helper()
	s := r.audit()
	r.crew.speak()
	return s
}

func (r *rig) audit() step {
	r.t.Helper()
	r.crew.rest()
	taken := func() uint64 { return r.picker.plane.Stats().Messages }
	progress(r.t, "the plane is connected and has taken in all that came", taken, func() bool {
		s := r.picker.plane.Stats()
		return s.Connected && s.Messages+s.Dropped == r.witness.count()
	})
	// Once others get through, what the quiet ones say is not lost.
	r.crew.say(r.crew.loud, (*worker).speak)
	r.crew.say(r.crew.quiet, (*worker).speak)
	if r.picker.streams {
		r.catchUp()
	}
	var s step
	for _, w := range r.crew.workers {
		s.lost += w.post(&s.gone)
	}
	r.witness.forget()
	if r.picker.recovers {
		r.checkRecovered(&s)
	} else {
		r.checkCounts(&s)
	}
	r.checkPlane()
	for _, w := range r.crew.workers {
		if slices.ContainsFunc(w.ranks, func(r *rank) bool { return r.books.tainted }) {
			s.tainted = append(s.tainted, w)
		}
	}
	r.checkContent()
	if r.t.Failed() {
		r.t.FailNow()
	}
	return s
}

// catchUp waits until the plane has read all that the stream holds. What went through
// need not be all before it: after a disconnect the server may go on with its old
// consumer, behind what was on its way to the plane when the connection broke. The
// plane takes none of that, and reads all again in order.
func (r *rig) catchUp() {
	r.t.Helper()
	last := map[fleet.Key]uint64{}
	each(r.crew.workers, func(w *worker) {
		for _, k := range w.ranks {
			last[k.key] = k.last
		}
	})
	eventually(r.t, "the plane has read the stream to its end", func() bool {
		for k, a := range r.picker.accounts() {
			if a.Last != last[k] {
				return false
			}
		}
		s := r.picker.plane.Stats()
		return s.Messages+s.Dropped == r.witness.count()
	})
}

// checkCounts holds the counters of every rank against its books: every event
// that was published is taken in, or known to be lost.
func (r *rig) checkCounts(s *step) {
	r.t.Helper()
	var got map[fleet.Key]account
	equal := within(patience, func() bool {
		got = r.picker.accounts()
		s.dropped = r.picker.plane.Stats().Dropped - r.dropped
		return s.dropped == 0 && maps.Equal(got, r.wanted()) || s.dropped > 0 && r.taken(got)
	})
	if s.dropped > 0 {
		r.checkDropped(got, s.dropped)
		r.dropped += s.dropped
	} else if !equal {
		r.t.Errorf("counters of ranks (-want +got):\n%s", cmp.Diff(r.wanted(), got))
	}
	for _, k := range r.ranks() {
		b, g := &k.books, got[k.key]
		if b.pending > 0 || g.Events+g.Missed+b.unnoticed != b.published {
			r.t.Errorf("rank %v: of %d events %d are taken in and %d are known to be lost, and %d need not be known", k.key, b.published, g.Events, g.Missed, b.unnoticed)
		}
		r.noteDelays(k)
	}
}

// checkRecovered is checkCounts where the workers can be asked: an event that came
// counts, be it as one that was told before; and soon nothing is in doubt.
func (r *rig) checkRecovered(s *step) {
	r.t.Helper()
	var got map[fleet.Key]account
	var workers map[fleet.Key]eventplane.WorkerStats
	lost := uint64(0)
	counted := func() bool {
		workers = r.picker.plane.Workers()
		got = accountsOf(workers)
		s.dropped = r.picker.plane.Stats().Dropped - r.dropped
		lost = r.uncounted(got)
		// What waited for an answer counts only some time after the answer.
		return allSynced(workers) && r.taken(got) && lost == s.dropped
	}
	ok := false
	for before := lost + 1; !ok && before != lost; { // as long as more counts: how fast is the machine's affair
		before = lost
		ok = within(soon, counted)
	}
	r.dropped += s.dropped
	if !ok {
		r.t.Errorf("%d messages were dropped, %d of those that came are not counted, and all should be known again: %+v", s.dropped, lost, workers)
	}
	for _, k := range r.ranks() {
		g, b := got[k.key], &k.books
		b.tainted, b.noticed = false, nil
		r.picker.forget(k.key)
		b.Events = g.Events + g.Skipped
	}
}

func allSynced(workers map[fleet.Key]eventplane.WorkerStats) bool {
	for _, w := range workers {
		if w.State != eventplane.Synced {
			return false
		}
	}
	return true
}

// uncounted is how many events came that the plane neither took in nor skipped.
func (r *rig) uncounted(got map[fleet.Key]account) uint64 {
	n := uint64(0)
	for _, k := range r.ranks() {
		g := got[k.key]
		n += k.books.Events - g.Events - g.Skipped
	}
	return n
}

// noteDelays notes how long the gaps of this step were not known.
func (r *rig) noteDelays(k *rank) {
	r.t.Helper()
	b := &k.books
	before := int(b.Gaps) - len(b.noticed)
	for i, m := range b.noticed {
		r.late = max(r.late, r.picker.knownAt(k.key, before+i).Sub(r.picker.takenAt(k.key, m)))
	}
	b.noticed = nil
	r.picker.forget(k.key)
}

// wanted is what the books say.
func (r *rig) wanted() map[fleet.Key]account {
	want := map[fleet.Key]account{}
	for _, k := range r.ranks() {
		want[k.key] = k.books.account
	}
	return want
}

// taken says whether the last event of every rank has been taken in.
func (r *rig) taken(got map[fleet.Key]account) bool {
	return !slices.ContainsFunc(r.ranks(), func(k *rank) bool { return got[k.key].Last != k.books.Last })
}

// checkDropped is checkCounts where NATS dropped messages in front of the plane.
// Which ones, nobody knows but by the counters: they must add up. Such messages
// are of one event each.
func (r *rig) checkDropped(got map[fleet.Key]account, dropped uint64) {
	r.t.Helper()
	sum := uint64(0)
	for _, w := range r.crew.workers {
		for _, k := range w.ranks {
			g, b := got[k.key], &k.books
			lost := b.Events - g.Events
			want := b.account
			// Gaps that lie side by side are one.
			want.Events, want.Missed, want.Gaps = g.Events, b.Missed+lost, g.Gaps
			before := b.Gaps - uint64(len(b.noticed))
			if g != want || (g.Gaps > before) != (lost > 0 || b.Gaps > before) {
				r.t.Errorf("rank %v with %d messages dropped: %+v, the transport delivered %+v", k.key, lost, g, b.account)
			}
			sum += lost
			b.account, b.noticed = g, nil
			if lost > 0 {
				w.taint()
			}
		}
	}
	if sum != dropped {
		r.t.Errorf("%d messages were dropped, and the ranks miss %d", dropped, sum)
	}
}

// checkPlane checks the counters of the plane as a whole. A message counts when all
// its events have.
func (r *rig) checkPlane() {
	r.t.Helper()
	var s eventplane.Stats
	var n uint64
	if !within(patience, func() bool {
		s, n = r.picker.plane.Stats(), r.witness.count()
		return s.Messages+s.Dropped >= n
	}) || s.Messages+s.Dropped != n || s.BadMessages+s.OtherSpace != 0 {
		r.t.Errorf("%d messages were delivered: %+v", n, s)
	}
}

// checkContent holds the index against the caches: of ranks of which nothing was
// lost, or all is known again, it must be the truth; of the others no more than that.
// A plane that can ask makes sure of all workers after a disconnect: it may be about
// to do so.
func (r *rig) checkContent() {
	r.t.Helper()
	limit := time.Duration(0)
	if r.picker.recovers {
		limit = patience
	}
	var wrong []string
	within(limit, func() bool {
		if wrong = r.wrongHeld(); len(wrong) == 0 {
			wrong = r.wrongMatches()
		}
		return len(wrong) == 0
	})
	for _, text := range wrong {
		r.t.Error(text)
	}
}

// wrongMatches says what is wrong with lookups.
func (r *rig) wrongMatches() (wrong []string) {
	var m index.Match
	for _, d := range r.crew.documents {
		r.picker.index.Match(d.chains, &m)
		for _, k := range r.ranks() {
			slot, ok := r.picker.index.Lookup(k.key)
			if !ok {
				return append(wrong, fmt.Sprintf("rank %v is not in the index", k.key))
			}
			got, want := m.Depth(slot), k.cache.depth(d.chains)
			if got != want && (!k.books.tainted || got.Total() > want.Total()) {
				wrong = append(wrong, fmt.Sprintf("rank %v is said to hold %+v of a prompt, and holds %+v (in doubt: %t)", k.key, got, want, k.books.tainted))
			}
		}
	}
	return wrong
}

// wrongHeld says what is wrong with what ranks are said to hold, and with how far the
// plane trusts that.
func (r *rig) wrongHeld() (wrong []string) {
	workers := r.picker.plane.Workers()
	for _, k := range r.ranks() {
		if s := workers[k.key].State; !k.books.tainted && s != eventplane.Synced && s != eventplane.Suspect {
			wrong = append(wrong, fmt.Sprintf("rank %v is %s, and nothing of it was lost", k.key, s))
		}
		for t := range kvevent.Tier(kvevent.NumTiers) {
			got, want := r.picker.index.Chains(k.key, t), slices.Collect(maps.Keys(k.cache.tiers[t]))
			more, less := except(got, want), except(want, got)
			if more > 0 || less > 0 && !k.books.tainted {
				wrong = append(wrong, fmt.Sprintf("rank %v is said to hold %d blocks on %s, and holds %d: %d too many, %d missing (in doubt: %t)",
					k.key, len(got), t, len(want), more, less, k.books.tainted))
			}
		}
	}
	return wrong
}

// except counts the chains that are in one list and not in another.
func except(list, other []block.Chain) (n int) {
	for _, c := range list {
		if !slices.Contains(other, c) {
			n++
		}
	}
	return n
}

func (r *rig) ranks() (all []*rank) {
	for _, w := range r.crew.workers {
		all = append(all, w.ranks...)
	}
	return all
}

// mend ends all doubt: half of the workers of which something was lost clear
// their caches, the others start over. Then all must be known again, and no more.
func (r *rig) mend(tainted []*worker) {
	r.t.Helper()
	r.crew.rest()
	half := len(tainted) / 2
	r.crew.say(tainted[:half], (*worker).clear)
	r.crew.restart(tainted[half:]...)
	s := r.audit()
	if s.lost != 0 || s.dropped != 0 || len(s.tainted) != 0 {
		r.t.Errorf("after the trouble: %d events lost, %d messages dropped, %d workers in doubt", s.lost, s.dropped, len(s.tainted))
	}
	r.crew.speak()
}
