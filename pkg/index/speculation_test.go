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

// spec is the slow, obvious Speculation: a note per worker and block.
type spec struct {
	ttl, wait time.Duration
	alone     bool // without events
	notes     map[index.Slot]map[block.Chain]*specNote
}

type specNote struct {
	until    time.Time
	waiting  map[int]bool // decisions that are to bring the block
	computed bool         // one did
}

// record is the decision of a number.
func (s *spec) record(number int, now time.Time, slot index.Slot, chains []block.Chain, from int) {
	if s.ttl == 0 {
		return
	}
	if s.notes[slot] == nil {
		s.notes[slot] = map[block.Chain]*specNote{}
	}
	for i, c := range chains {
		n := s.notes[slot][c]
		over := n == nil || !now.Before(n.until)
		switch {
		case s.alone:
			s.notes[slot][c] = &specNote{until: now.Add(s.ttl)}
		case over && i < from || !over && n.computed:
		case over || len(n.waiting) == 0:
			s.notes[slot][c] = &specNote{until: now.Add(s.wait), waiting: map[int]bool{number: true}}
		default:
			n.waiting[number] = true
		}
	}
}

// end ends what a decision is to bring.
func (s *spec) end(number int, now time.Time, computed bool) {
	for _, notes := range s.notes {
		for _, n := range notes {
			if !n.waiting[number] || n.computed {
				continue
			}
			delete(n.waiting, number)
			n.computed = computed
			if until := now.Add(s.ttl); (computed || len(n.waiting) == 0) && until.Before(n.until) {
				n.until = until
			}
		}
	}
}

// depth is how far guesses carry on from the first held blocks of a prompt.
func (s *spec) depth(now time.Time, slot index.Slot, chains []block.Chain, held int) int {
	for n, c := range chains {
		if n < held {
			continue
		}
		if note := s.notes[slot][c]; note == nil || !now.Before(note.until) {
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
		for _, s := range guessSlots[rapid.IntRange(0, len(guessSlots)).Draw(t, "empty"):] {
			for tier := range kvevent.Tier(kvevent.NumTiers) {
				ev := storedAll(uint64(s), tier, path.Draw(t, "held"))
				if err := x.Apply(&ev); err != nil {
					t.Fatal(err)
				}
			}
		}
		ttl := time.Duration(rapid.SampledFrom([]int{0, 1, 2, 5, 5, 5}).Draw(t, "ttl")) * time.Millisecond
		g := fresh(ttl)
		twin := &spec{ttl: ttl, wait: index.SpeculationWait, alone: whole, notes: map[index.Slot]map[block.Chain]*specNote{}}
		now := time.Unix(1000, 0)
		var guesses []index.Guess // by the number of the decision
		var prompts [][]block.Chain
		slots := guessSlots[:rapid.IntRange(1, len(guessSlots)).Draw(t, "slots")] // the fewer, the more happens to each
		var m index.Match
		step := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 1), rapid.Just(index.SpeculationWait.Milliseconds()/2))
		advance := func(t *rapid.T) {
			now = now.Add(time.Duration(step.Draw(t, "ms")) * time.Millisecond)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, p := range prompts[max(0, len(prompts)-8):] {
					for _, s := range slots[:min(3, len(slots))] { // of guessPool
						if got, want := remembered(g, now, s, p), twin.depth(now, s, p, 0); got != want {
							t.Fatalf("slot %d: %d blocks of a recorded prompt are guessed, want %d", s, got, want)
						}
					}
				}
			},
			"record": func(t *rapid.T) {
				advance(t)
				slot := rapid.SampledFrom(slots).Draw(t, "slot")
				chains := prompt(path.Draw(t, "path")...)
				from := rapid.IntRange(0, len(chains)).Draw(t, "from")
				twin.record(len(guesses), now, slot, chains, from)
				guesses = append(guesses, g.Record(now, slot, chains, from))
				prompts = append(prompts, slices.Clone(chains))
				clear(chains) // the caller reuses its buffer
			},
			"end": func(t *rapid.T) {
				if len(guesses) == 0 {
					return
				}
				advance(t)
				number, computed := len(guesses)-1-rapid.IntRange(0, min(4, len(guesses)-1)).Draw(t, "age"), rapid.Bool().Draw(t, "computed")
				if twin.end(number, now, computed); computed {
					guesses[number].Computed(now)
				} else {
					guesses[number].GivenUp(now)
				}
			},
			"forget": func(t *rapid.T) {
				slot := rapid.SampledFrom(slots).Draw(t, "slot")
				g.Forget(slot)
				delete(twin.notes, slot)
			},
			"merge": func(t *rapid.T) {
				advance(t)
				chains := prompt(path.Draw(t, "prompt")...)
				if len(prompts) > 0 && rapid.Bool().Draw(t, "recorded") {
					chains = rapid.SampledFrom(prompts).Draw(t, "which")
				}
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
		for _, s := range slots {
			g.Forget(s)
		}
		if r := g.Remembered(); r.Bytes != 0 || r.Blocks != 0 {
			t.Fatalf("%+v is left when all is forgotten", r)
		}
	})
}

// Rules of Speculation one by one. Slot 0 holds nothing; the prompt has three blocks.
func TestSpeculationRules(t *testing.T) {
	const ttl, wait = time.Second, index.SpeculationWait
	start := time.Unix(1000, 0)
	long, other := prompt(1, 2, 3), prompt(1, 9)
	computed := func(g index.Guess, at time.Time) { g.Computed(at) }
	givenUp := func(g index.Guess, at time.Time) { g.GivenUp(at) }
	for _, tc := range []struct {
		name string
		do   func(g *index.Speculation)
		at   time.Duration // of the lookup
		want int
	}{
		{"nothing recorded", func(*index.Speculation) {}, 0, 0},
		{"recorded", func(g *index.Speculation) { g.Record(start, 0, long, 0) }, 0, 3},
		{"it waits", func(g *index.Speculation) { g.Record(start, 0, long, 0) }, wait - 1, 3},
		{"it waits too long", func(g *index.Speculation) { g.Record(start, 0, long, 0) }, wait, 0},
		{"computed, just before expiry", func(g *index.Speculation) { computed(g.Record(start, 0, long, 0), start.Add(30*ttl)) }, 31*ttl - 1, 3},
		{"computed, at expiry", func(g *index.Speculation) { computed(g.Record(start, 0, long, 0), start.Add(30*ttl)) }, 31 * ttl, 0},
		{"given up, just before expiry", func(g *index.Speculation) { givenUp(g.Record(start, 0, long, 0), start.Add(30*ttl)) }, 31*ttl - 1, 3},
		{"given up, at expiry", func(g *index.Speculation) { givenUp(g.Record(start, 0, long, 0), start.Add(30*ttl)) }, 31 * ttl, 0},
		{"computed at the last moment", func(g *index.Speculation) { computed(g.Record(start, 0, long, 0), start.Add(wait-1)) }, wait, 0},
		{"given up, while another waits", func(g *index.Speculation) {
			first := g.Record(start, 0, long, 0)
			g.Record(start, 0, long, 3)
			givenUp(first, start)
		}, 9 * ttl, 3},
		{"given up, while another waits for a part", func(g *index.Speculation) {
			first := g.Record(start, 0, long, 0)
			g.Record(start, 0, other, 1)
			givenUp(first, start)
		}, 9 * ttl, 1},
		{"computed, while another waits", func(g *index.Speculation) {
			first := g.Record(start, 0, long, 0)
			g.Record(start, 0, long, 3)
			computed(first, start)
		}, ttl, 0},
		{"computed, then sent again", func(g *index.Speculation) {
			computed(g.Record(start, 0, long, 0), start)
			g.Record(start.Add(ttl/2), 0, long, 0)
		}, ttl, 0},
		{"computed, then sent again and again", func(g *index.Speculation) {
			computed(g.Record(start, 0, long, 0), start)
			g.Record(start.Add(ttl/2), 0, long, 0)
			g.Record(start.Add(ttl/2), 0, long, 3)
		}, ttl, 0},
		{"longer, then the shorter is computed", func(g *index.Speculation) {
			first := g.Record(start, 0, long[:2], 0)
			g.Record(start, 0, long, 2)
			computed(first, start)
			g.Record(start.Add(ttl), 0, long[:2], 0)
		}, 9 * ttl, 3},
		{"given up, then sent again", func(g *index.Speculation) {
			givenUp(g.Record(start, 0, long, 0), start)
			g.Record(start.Add(ttl/2), 0, long, 3)
		}, 9 * ttl, 3},
		{"over, then sent again", func(g *index.Speculation) {
			computed(g.Record(start, 0, long, 0), start)
			g.Record(start.Add(ttl), 0, long, 0)
		}, 9 * ttl, 3},
		{"nobody recorded what another waits for", func(g *index.Speculation) { g.Record(start, 0, long, 3) }, 0, 0},
		{"an end from before it was forgotten", func(g *index.Speculation) {
			first := g.Record(start, 0, long, 0)
			g.Record(start, 1, long, 0)
			g.Forget(0)
			g.Record(start, 0, long, 0)
			computed(first, start)
		}, 9 * ttl, 3},
		{"ended twice", func(g *index.Speculation) {
			first := g.Record(start, 0, long, 0)
			g.Record(start, 0, long, 3)
			first.GivenUp(start)
			first.GivenUp(start)
			first.Computed(start)
		}, 9 * ttl, 3},
		{"no chains", func(g *index.Speculation) { g.Record(start, 0, nil, 0) }, 0, 0},
		{"other slot", func(g *index.Speculation) { g.Record(start, 1, long, 0) }, 0, 0},
		{"forgotten", func(g *index.Speculation) { g.Record(start, 0, long, 0); g.Record(start, 0, other, 0); g.Forget(0) }, 0, 0},
		{"another forgotten", func(g *index.Speculation) { g.Record(start, 0, long, 0); g.Record(start, 1, long, 0); g.Forget(1) }, 0, 3},
		{"forgotten, then recorded", func(g *index.Speculation) {
			g.Record(start, 0, long, 0)
			g.Forget(0)
			g.Record(start.Add(ttl/2), 0, long, 0)
		}, ttl, 3},
		{"clock steps back: the guess stays", func(g *index.Speculation) { g.Record(start.Add(ttl), 0, long, 0); g.Record(start, 0, long, 0) }, wait, 3},
		{"clock steps back: it still ends", func(g *index.Speculation) { g.Record(start.Add(ttl), 0, long, 0); g.Record(start, 0, long, 0) }, wait + ttl, 0},
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
	guess := g.Record(now, 0, chains, 0)
	if d := depth(chains, now); d != device(20) {
		t.Errorf("it was sent the prompt, and is credited %+v", d)
	}
	guess.Computed(now)
	x.Show(key(1))
	if d := depth(chains, now.Add(time.Second)); d != device(10) {
		t.Errorf("its events are trusted again: %+v", d)
	}
}
