package index_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// spec is the slow, obvious Speculation: a list of all that was recorded.
type spec []specEntry

type specEntry struct {
	slot   index.Slot
	chains []block.Chain
	until  time.Time
}

// depth is how far guesses carry on from the first held blocks of a prompt.
func (s spec) depth(now time.Time, slot index.Slot, chains []block.Chain, held int) int {
	for n, c := range chains {
		if n < held {
			continue
		}
		if !slices.ContainsFunc(s, func(e specEntry) bool {
			return e.slot == slot && now.Before(e.until) && slices.Contains(e.chains, c)
		}) {
			return n
		}
	}
	return len(chains)
}

// merged is what a match becomes once the first guess blocks are expected on
// the device: tiers below count only what lies beyond.
func merged(d index.Depth, guess int) index.Depth {
	ends := [...]int{d.Device, d.Device + d.Host, d.Device + d.Host + d.Disk, d.Total()}
	for i := range ends {
		ends[i] = max(ends[i], guess)
	}
	return index.Depth{Device: ends[0], Host: ends[1] - ends[0], Disk: ends[2] - ends[1], External: ends[3] - ends[2]}
}

// Slots in several words of the bitsets.
var guessSlots = []index.Slot{0, 1, 63, 64, 127, 129}

func TestSpeculationEqualsTwin(t *testing.T) {
	t.Run("beside events", func(t *testing.T) { equalsTwin(t, index.NewSpeculation, false) })
	t.Run("alone", func(t *testing.T) { equalsTwin(t, approximation, true) })
}

func approximation(ttl time.Duration) *index.Speculation { return index.NewApproximation(ttl, 1<<30) }

func equalsTwin(t *testing.T, fresh func(ttl time.Duration) *index.Speculation, whole bool) {
	rapid.Check(t, func(t *rapid.T) {
		x := index.New()
		for id := range uint64(130) {
			if _, err := x.Register(key(id)); err != nil {
				t.Fatal(err)
			}
		}
		path := rapid.SliceOfN(rapid.Map(hashes, func(h uint64) block.Hash { return block.Hash(h) }), 1, 6)
		for _, s := range guessSlots {
			for tier := range kvevent.Tier(kvevent.NumTiers) {
				ev := storedAll(uint64(s), tier, path.Draw(t, "held"))
				if err := x.Apply(&ev); err != nil {
					t.Fatal(err)
				}
			}
		}
		ttl := time.Duration(rapid.IntRange(0, 5).Draw(t, "ttl")) * time.Millisecond
		g, twin := fresh(ttl), spec(nil)
		now := time.Unix(1000, 0)
		var m index.Match
		advance := func(t *rapid.T) {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "ms")) * time.Millisecond)
		}
		t.Repeat(map[string]func(*rapid.T){
			"record": func(t *rapid.T) {
				advance(t)
				slot := rapid.SampledFrom(guessSlots).Draw(t, "slot")
				chains := prompt(path.Draw(t, "path")...)
				from := rapid.IntRange(0, len(chains)-1).Draw(t, "from")
				g.Record(now, slot, chains, from)
				if whole {
					from = 0
				}
				twin = append(twin, specEntry{slot, slices.Clone(chains[from:]), now.Add(ttl)})
				chains[0]++ // the caller reuses its buffer
			},
			"forget": func(t *rapid.T) {
				slot := rapid.SampledFrom(guessSlots).Draw(t, "slot")
				g.Forget(slot)
				twin = slices.DeleteFunc(twin, func(e specEntry) bool { return e.slot == slot })
			},
			"merge": func(t *rapid.T) {
				advance(t)
				chains := prompt(path.Draw(t, "prompt")...)
				x.Match(chains, &m)
				before := map[index.Slot]index.Depth{}
				for _, s := range guessSlots {
					before[s] = m.Depth(s)
				}
				g.Merge(now, chains, &m)
				for _, s := range guessSlots {
					if got, want := m.Depth(s), merged(before[s], twin.depth(now, s, chains, before[s].Device)); got != want {
						t.Fatalf("slot %d: %+v with guesses, want %+v (held: %+v)", s, got, want, before[s])
					}
				}
				if got := m.Depth(2); got != device(0) {
					t.Fatalf("a slot without guesses holds %+v", got)
				}
			},
		})
	})
}

// Rules of Speculation one by one. Slot 0 holds nothing; the prompt has three blocks.
func TestSpeculationRules(t *testing.T) {
	const ttl = time.Second
	start := time.Unix(1000, 0)
	long, other := prompt(1, 2, 3), prompt(1, 9)
	for _, tc := range []struct {
		name string
		do   func(g *index.Speculation)
		at   time.Duration // of the lookup
		want int
	}{
		{"nothing recorded", func(*index.Speculation) {}, 0, 0},
		{"recorded", func(g *index.Speculation) { g.Record(start, 0, long, 0) }, 0, 3},
		{"just before expiry", func(g *index.Speculation) { g.Record(start, 0, long, 0) }, ttl - 1, 3},
		{"at expiry", func(g *index.Speculation) { g.Record(start, 0, long, 0) }, ttl, 0},
		{"renewed", func(g *index.Speculation) { g.Record(start, 0, long, 0); g.Record(start.Add(ttl/2), 0, long, 0) }, ttl, 3},
		{"renewed in part", func(g *index.Speculation) { g.Record(start, 0, long, 0); g.Record(start.Add(ttl/2), 0, other, 0) }, ttl, 1},
		{"no chains", func(g *index.Speculation) { g.Record(start, 0, nil, 0) }, 0, 0},
		{"other slot", func(g *index.Speculation) { g.Record(start, 1, long, 0) }, 0, 0},
		{"forgotten", func(g *index.Speculation) { g.Record(start, 0, long, 0); g.Record(start, 0, other, 0); g.Forget(0) }, 0, 0},
		{"another forgotten", func(g *index.Speculation) { g.Record(start, 0, long, 0); g.Record(start, 1, long, 0); g.Forget(1) }, 0, 3},
		{"forgotten, then recorded", func(g *index.Speculation) {
			g.Record(start, 0, long, 0)
			g.Forget(0)
			g.Record(start.Add(ttl/2), 0, long, 0)
		}, ttl, 3},
		{"clock steps back: the guess stays", func(g *index.Speculation) { g.Record(start.Add(ttl), 0, long, 0); g.Record(start, 0, long, 0) }, ttl, 3},
		{"clock steps back: it still ends", func(g *index.Speculation) { g.Record(start.Add(ttl), 0, long, 0); g.Record(start, 0, long, 0) }, 2 * ttl, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := index.New()
			mustRegister(t, x, 1)
			mustRegister(t, x, 2)
			g := index.NewSpeculation(ttl)
			tc.do(g)
			var m index.Match
			x.Match(long, &m)
			g.Merge(start.Add(tc.at), long, &m)
			if got := m.Depth(0); got != device(tc.want) {
				t.Errorf("holds %+v, want %d blocks on the device", got, tc.want)
			}
		})
	}
}

// A guess about a slot that the lookup does not know is left out of it.
func TestMergeIgnoresSlotsBeyondTheLookup(t *testing.T) {
	x, g := index.New(), index.NewSpeculation(time.Second)
	mustRegister(t, x, 1)
	now, chains := time.Unix(1000, 0), prompt(1, 2)
	for _, s := range []index.Slot{1, 64, index.MaxWorkers} {
		g.Record(now, s, chains, 0)
	}
	var m index.Match
	x.Match(chains, &m)
	g.Merge(now, chains, &m)
	for _, s := range []index.Slot{0, 1, 64, index.MaxWorkers} {
		if got := m.Depth(s); got != device(0) {
			t.Errorf("slot %d holds %+v", s, got)
		}
	}
}

// Blocks that a guess puts on the device are not counted on a lower tier too.
func TestMergeCountsNoBlockTwice(t *testing.T) {
	x, g := index.New(), index.NewSpeculation(time.Second)
	mustApply(t, x, at{}.root(1, 1))
	mustApply(t, x, at{tier: kvevent.Host}.after(1, 2, 2, 3, 3))
	mustApply(t, x, at{tier: kvevent.Disk}.after(3, 4, 4))
	now, chains := time.Unix(1000, 0), prompt(1, 2, 3, 4)
	var m index.Match
	for guess, want := range []index.Depth{
		{Device: 1, Host: 2, Disk: 1}, {Device: 1, Host: 2, Disk: 1}, {Device: 2, Host: 1, Disk: 1}, {Device: 3, Disk: 1}, {Device: 4},
	} {
		g.Record(now, 0, chains[:guess], 0)
		x.Match(chains, &m)
		g.Merge(now, chains, &m)
		if got := m.Depth(0); got != want {
			t.Errorf("guess of %d blocks: %+v, want %+v", guess, got, want)
		}
	}
}

// A worker whose events were lost goes on with what decisions tell of it.
func TestGuessesAboutAHiddenWorker(t *testing.T) {
	contents, chains := counted(20)
	x, g, now := index.New(), index.NewSpeculation(time.Second), time.Unix(1000, 0)
	mustApply(t, x, storedAll(1, kvevent.Device, contents[:10]))
	if err := x.Hide(key(1)); err != nil {
		t.Fatal(err)
	}
	depth := func(chains []block.Chain, at time.Time) index.Depth {
		var m index.Match
		x.Match(chains, &m)
		g.Merge(at, chains, &m)
		return m.Depth(0)
	}
	if d := depth(chains, now); d != device(0) {
		t.Errorf("nothing is known, but %+v", d)
	}
	g.Record(now, 0, chains, 0)
	if d := depth(chains, now); d != device(20) {
		t.Errorf("it was sent the prompt, and is credited %+v", d)
	}
	x.Show(key(1))
	if d := depth(chains, now.Add(time.Second)); d != device(10) {
		t.Errorf("its events are trusted again: %+v", d)
	}
}
