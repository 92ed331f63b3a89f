package index_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/index"
)

// remembered is how many blocks of a prompt a slot is remembered to hold.
func remembered(g *index.Speculation, now time.Time, s index.Slot, chains []block.Chain) int {
	var m index.Match
	guessPool.Match(nil, &m)
	g.Merge(now, chains, &m)
	return m.Depth(s).Device
}

// guessPool has 64 workers, which hold nothing.
var guessPool = func() *index.Index {
	x := index.New()
	for id := range uint64(64) {
		if _, err := x.Register(key(id)); err != nil {
			panic(err)
		}
	}
	return x
}()

// told is the last time that a decision sent a worker a prompt that has a block.
type told map[index.Slot]map[block.Chain]time.Time

func (l told) record(now time.Time, s index.Slot, chains []block.Chain) {
	if l[s] == nil {
		l[s] = map[block.Chain]time.Time{}
	}
	for _, c := range chains {
		l[s][c] = now
	}
}

// What has to go for want of room goes in the order in which it would expire, worker
// by worker, and never the head of a prompt before its end.
func TestApproximationKeepsWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ttl = time.Hour
		bound := int64(rapid.IntRange(300, 4000).Draw(t, "bound"))
		g := index.NewApproximation(ttl, bound)
		last, now := told{}, time.Unix(1000, 0)
		var prompts [][]block.Chain
		path := rapid.SliceOfN(rapid.Map(hashes, func(h uint64) block.Hash { return block.Hash(h) }), 1, 12)
		check := func(t *rapid.T) {
			if r := g.Remembered(); r.Bytes > bound || r.Bytes < 0 {
				t.Fatalf("%d bytes, bound %d", r.Bytes, bound)
			}
			lost, reached := false, map[index.Slot]map[block.Chain]bool{0: {}, 1: {}, 63: {}}
			for s, blocks := range last {
				oldest, youngest := now.Add(ttl), time.Time{} // of those remembered, and of those not
				for _, p := range prompts {
					n := remembered(g, now, s, p)
					for i, c := range p {
						if i < n {
							reached[s][c] = true
						}
						at, known := blocks[c]
						switch {
						case !known && i < n:
							t.Fatalf("slot %d holds a block that it never got", s)
						case !known:
						case i < n && at.Before(oldest):
							oldest = at
						case i >= n && at.After(youngest):
							youngest, lost = at, true
						}
					}
				}
				if youngest.After(oldest) {
					t.Fatalf("slot %d lost a block of %v and kept one of %v", s, youngest, oldest)
				}
			}
			// What is left is of use: nothing is kept that no lookup can reach.
			if all := len(reached[0]) + len(reached[1]) + len(reached[63]); g.Remembered().Blocks != all {
				t.Fatalf("%d blocks are remembered, of which %d can be found", g.Remembered().Blocks, all)
			}
			if lost && g.Remembered().Evicted == 0 {
				t.Fatal("blocks went, and none is counted")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"record": func(t *rapid.T) {
				now = now.Add(time.Millisecond)
				chains := prompt(path.Draw(t, "path")...)
				s := rapid.SampledFrom([]index.Slot{0, 1, 63}).Draw(t, "slot")
				if int64(len(chains))*8+200 > bound {
					return // may be refused: see TestPromptLargerThanTheBound
				}
				g.Record(now, s, chains, 0)
				last.record(now, s, chains)
				prompts = append(prompts, chains)
			},
			"forget": func(*rapid.T) {
				g.Forget(1)
				delete(last, 1)
			},
		})
		for _, s := range []index.Slot{0, 1, 63} {
			g.Forget(s)
		}
		if r := g.Remembered(); r.Bytes != 0 || r.Blocks != 0 {
			t.Fatalf("%+v is left when all is forgotten", r)
		}
	})
}

// Guesses that had to go for want of room, or whose worker was forgotten, are ended like
// others. When all are ended and their time is over, nothing is expected of anybody.
func TestGuessesKeepWithinTheirBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ttl = time.Second
		bound := int64(rapid.IntRange(300, 3000).Draw(t, "bound"))
		g := index.NewBoundedSpeculation(ttl, bound)
		now := time.Unix(1000, 0)
		var open []*index.Guess
		var prompts [][]block.Chain
		slots := []index.Slot{0, 1, 63}
		path := rapid.SliceOfN(rapid.Map(hashes, func(h uint64) block.Hash { return block.Hash(h) }), 1, 12)
		end := func(i int, computed bool) {
			if computed {
				open[i].Computed(now)
			} else {
				open[i].GivenUp(now)
			}
			open = slices.Delete(open, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if r := g.Remembered(); r.Bytes > bound || r.Bytes < 0 || r.Blocks < 0 {
					t.Fatalf("%+v, bound %d", r, bound)
				}
			},
			"record": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond)
				chains, s := prompt(path.Draw(t, "path")...), rapid.SampledFrom(slots).Draw(t, "slot")
				guess := g.Record(now, s, chains, remembered(g, now, s, chains))
				open, prompts = append(open, &guess), append(prompts, chains)
			},
			"end": func(t *rapid.T) {
				if len(open) > 0 {
					end(rapid.IntRange(0, len(open)-1).Draw(t, "which"), rapid.Bool().Draw(t, "computed"))
				}
			},
			"forget": func(t *rapid.T) { g.Forget(rapid.SampledFrom(slots).Draw(t, "slot")) },
		})
		for len(open) > 0 {
			end(0, false)
		}
		for _, p := range prompts {
			for _, s := range slots {
				if n := remembered(g, now.Add(ttl), s, p); n > 0 {
					t.Fatalf("all requests are over, but slot %d is to hold %d blocks", s, n)
				}
			}
		}
		for _, s := range slots {
			g.Forget(s)
		}
		if r := g.Remembered(); r.Bytes != 0 || r.Blocks != 0 {
			t.Fatalf("%+v is left when all is forgotten", r)
		}
	})
}

// A worker that gets a lot does not push out what others are remembered to hold.
func TestBoundIsFairToWorkers(t *testing.T) {
	_, small := counted(16)
	g := index.NewApproximation(time.Hour, 64<<10)
	now := time.Unix(1000, 0)
	g.Record(now, 1, small, 0)
	for i := range 1000 {
		now = now.Add(time.Millisecond)
		g.Record(now, 0, prompt(block.Hash(1<<32+i), 1, 2, 3), 0)
	}
	if n := remembered(g, now, 1, small); n != len(small) {
		t.Errorf("%d of the %d blocks of the other worker are left", n, len(small))
	}
	if r := g.Remembered(); r.Evicted == 0 || r.Bytes < 60<<10 {
		t.Errorf("%+v, want a memory that is full", r)
	}
}

func TestPromptLargerThanTheBound(t *testing.T) {
	_, chains := counted(1000)
	g := index.NewApproximation(time.Hour, 7000)
	now := time.Unix(1000, 0)
	g.Record(now, 0, chains, 0)
	if n, r := remembered(g, now, 0, chains), g.Remembered(); n != 0 || r.Bytes != 0 {
		t.Errorf("%d blocks are remembered, in %d bytes", n, r.Bytes)
	}
	g.Record(now, 0, chains[:100], 0)
	if n := remembered(g, now, 0, chains); n != 100 {
		t.Errorf("%d blocks are remembered, want 100", n)
	}
}

// What has expired is swept out by decisions about other workers.
func TestExpiredIsSweptOut(t *testing.T) {
	g := index.NewApproximation(time.Second, 1<<20)
	now := time.Unix(1000, 0)
	for i := range 200 {
		g.Record(now, 0, prompt(block.Hash(i), 1000, 1001), 0)
	}
	full := g.Remembered().Bytes
	now = now.Add(time.Second)
	for range 100 {
		g.Record(now, 1, prompt(5000), 0)
	}
	if left := g.Remembered().Bytes; left > full/100 {
		t.Errorf("%d of %d bytes are left", left, full)
	}
}

// Guesses whose time is over are swept out, however many that are older still wait.
func TestSettledIsSweptOut(t *testing.T) {
	g := index.NewSpeculation(time.Second)
	now := time.Unix(1000, 0)
	_, waiting := counted(16)
	g.Record(now, 0, waiting, 0)
	for i := range 200 {
		guess := g.Record(now, 0, prompt(block.Hash(5000+i), 1000, 1001), 0)
		guess.Computed(now)
	}
	now = now.Add(time.Second)
	for i := range 100 {
		g.Record(now, 1, prompt(block.Hash(6000+i)), 0)
	}
	if left := g.Remembered().Blocks; left != len(waiting)+100 {
		t.Errorf("%d blocks are left, want the %d that wait", left, len(waiting)+100)
	}
}

// Rules of approximate mode one by one (dynamo.md 4.3).
func TestApproximationRules(t *testing.T) {
	const ttl = time.Second
	start := time.Unix(1000, 0)
	long, short, other := prompt(1, 2, 3), prompt(1, 2), prompt(1, 9)
	type do = func(g *index.Speculation)
	for _, tc := range []struct {
		name string
		do   do
		at   time.Duration // of the lookup
		want int
	}{
		{"reuse refreshes, whatever the worker is said to hold", func(g *index.Speculation) {
			g.Record(start, 0, long, 0)
			g.Record(start.Add(ttl/2), 0, long, 3-1)
		}, ttl, 3},
		{"reuse by another worker does not", func(g *index.Speculation) {
			g.Record(start, 0, long, 0)
			g.Record(start.Add(ttl/2), 1, long, 0)
		}, ttl, 0},
		{"the part that is reused lives on", func(g *index.Speculation) {
			g.Record(start, 0, long, 0)
			g.Record(start.Add(ttl/2), 0, other, 0)
		}, ttl, 1},
		{"the beginning of a prompt lives on", func(g *index.Speculation) {
			g.Record(start, 0, long, 0)
			g.Record(start.Add(ttl/2), 0, short, 0)
		}, ttl, 2},
		{"a conversation grows", func(g *index.Speculation) {
			g.Record(start, 0, short, 0)
			g.Record(start.Add(ttl/2), 0, long, 2)
		}, ttl, 3},
		{"a conversation moves", func(g *index.Speculation) {
			g.Record(start, 1, short, 0)
			g.Record(start.Add(ttl/2), 0, long, 0)
		}, ttl, 3},
		{"expired, then recorded", func(g *index.Speculation) {
			g.Record(start, 0, long, 0)
			g.Record(start.Add(2*ttl), 0, short, 0)
		}, 2 * ttl, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := approximation(ttl)
			tc.do(g)
			if n := remembered(g, start.Add(tc.at), 0, long); n != tc.want {
				t.Errorf("%d blocks, want %d", n, tc.want)
			}
		})
	}
}

// A prompt without token ids, as a decision looks it up: no chains for the index,
// runs of text for what is remembered.
func TestRemembranceOfTexts(t *testing.T) {
	_, runs := counted(10)
	g, now := approximation(time.Second), time.Unix(1000, 0)
	g.Record(now, 3, runs[:7], 0)
	for _, tc := range []struct{ from, to, want int }{{64, 16, 28}, {64, 64, 7}, {64, 100, 4}, {64, 500, 0}, {0, 16, 0}} {
		var m index.Match
		guessPool.Match(nil, &m)
		g.Merge(now, runs, &m)
		m.Rescale(tc.from, tc.to)
		if m.Depth(3) != device(tc.want) || m.Depth(2) != device(0) || m.Depth(100) != device(0) {
			t.Errorf("7 runs of %d tokens are %+v blocks of %d, want %d", tc.from, m.Depth(3), tc.to, tc.want)
		}
	}
}

// Decisions, and workers that leave, all at once. What is left at the end is what
// the last decisions recorded.
func TestSpeculationIsConcurrent(t *testing.T) {
	for name, g := range map[string]*index.Speculation{
		"room": approximation(time.Second), "no room": index.NewApproximation(time.Second, 20<<10), "beside events": index.NewSpeculation(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			prompts := promptMix(64, 64)
			var wg sync.WaitGroup
			for id := range index.Slot(4) {
				wg.Go(func() {
					var m index.Match
					var open []*index.Guess
					for i := range 400 {
						now, chains := time.Unix(1000, int64(i)*10e6), prompts[(i*7+int(id))%len(prompts)]
						guess := g.Record(now, id, chains, i%3)
						if open = append(open, &guess); len(open) > 10 {
							open[i%10].Computed(now)
							open[9-i%10].GivenUp(now)
						}
						guessPool.Match(nil, &m)
						g.Merge(now, chains, &m)
						for s := range index.Slot(64) {
							if d := m.Depth(s).Device; d > len(chains) || s > 3 && d > 0 {
								t.Errorf("slot %d holds %d of %d blocks", s, d, len(chains))
							}
						}
						if i%50 == 0 {
							g.Forget(id)
							g.Remembered()
						}
					}
				})
			}
			wg.Wait()
			now := time.Unix(1004, 0)
			g.Record(now, 3, prompts[0], 0)
			if n := remembered(g, now, 3, prompts[0]); n != len(prompts[0]) {
				t.Errorf("%d blocks are remembered, want %d", n, len(prompts[0]))
			}
			for id := range index.Slot(4) {
				g.Forget(id)
			}
			if r := g.Remembered(); r.Bytes != 0 {
				t.Errorf("%d bytes are left when all is forgotten", r.Bytes)
			}
		})
	}
}

// Chains come from prompts; whatever they are, nothing breaks.
func FuzzSpeculation(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 1, 2, 2, 2, 0, 3, 1, 1, 1}, uint16(500))
	f.Fuzz(func(t *testing.T, data []byte, bound uint16) {
		g := index.NewApproximation(time.Second, int64(bound))
		now := time.Unix(1000, 0)
		for i, part := range slices.Collect(slices.Chunk(data, 7)) {
			var chains []block.Chain
			for _, c := range part {
				chains = append(chains, block.Chain(c%5))
			}
			s := index.Slot(part[0] % 4)
			now = now.Add(time.Duration(part[0]) * time.Millisecond)
			if g.Record(now, s, chains, 0); i%5 == 4 {
				g.Forget(s)
			}
			if n := remembered(g, now, s, chains); n > len(chains) {
				t.Fatalf("%d blocks of %d", n, len(chains))
			}
		}
	})
}
