package load_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/load"
)

// waits are metrics that say how many requests wait.
func waits(n int, t time.Time) load.Scraped {
	s := silent(t)
	s.Waiting = n
	return s
}

// uses are metrics that say which share of 1000 blocks is in use.
func uses(share float64, t time.Time) load.Scraped {
	s := silent(t)
	s.KVUse, s.KVBlocks = share, 1000
	return s
}

// TestMoreThanIsBooked: two prompts of 100 tokens and 10 blocks are booked here, and
// one of 40 tokens and 5 blocks by others.
func TestMoreThanIsBooked(t *testing.T) {
	const tokens, blocks = 240, 25
	type engines = *load.Engines
	scraped := func(s load.Scraped) func(engines) { return func(e engines) { e.Scraped(key(1), s) } }
	for _, tc := range []struct {
		name   string
		say    []func(engines)
		at     float64
		tokens int
		blocks int
	}{
		{"fewer wait than are booked", []func(engines){scraped(waits(2, at(0)))}, 0, tokens, blocks},
		{"as many wait", []func(engines){scraped(waits(3, at(0)))}, 0, tokens, blocks},
		{"more wait", []func(engines){scraped(waits(8, at(0)))}, 0, tokens + 5*100, blocks},
		{"more waited", []func(engines){scraped(waits(8, at(0)))}, 2.5, tokens + 250, blocks},
		{"more waited long ago", []func(engines){scraped(waits(8, at(0)))}, 5, tokens, blocks},
		{"more waited, now none", []func(engines){scraped(waits(8, at(0))), scraped(waits(0, at(1)))}, 1, tokens, blocks},
		{"others' metrics", []func(engines){scraped(waits(8, at(0))), scraped(uses(0, at(1)))}, 1, tokens + 400, blocks},
		{"more than any queue has", []func(engines){scraped(waits(math.MaxInt, at(0)))}, 0, tokens + 1<<26, blocks},
		{"the engine states tokens", []func(engines){
			scraped(waits(8, at(0))),
			func(e engines) { e.Step(key(1), queue(1, tokens+7, at(1))) },
		}, 1, tokens + 7, blocks},
		{"the engine stated tokens before", []func(engines){
			func(e engines) { e.Step(key(1), queue(1, tokens, at(0))) },
			scraped(waits(8, at(1))),
		}, 1, tokens, blocks},
		{"the engine stated tokens long ago", []func(engines){
			func(e engines) { e.Step(key(1), queue(1, tokens, at(0))) },
			scraped(waits(8, at(2.5))),
		}, 5, tokens + 250, blocks},
		{"fewer blocks are used than are booked", []func(engines){scraped(uses(0.02, at(0)))}, 0, tokens, blocks},
		{"more blocks are used", []func(engines){scraped(uses(0.5, at(0)))}, 0, tokens, 500},
		{"more blocks were used", []func(engines){scraped(uses(0.525, at(0)))}, 2.5, tokens, blocks + 250},
		{"more blocks were used long ago", []func(engines){scraped(uses(0.5, at(0)))}, 5, tokens, blocks},
		{"nobody knows how many there are", []func(engines){func(e engines) {
			s := silent(at(0))
			s.KVUse = 0.5
			e.Scraped(key(1), s)
		}}, 0, tokens, blocks},
		{"the worker states blocks, on change only", []func(engines){
			scraped(uses(0, at(0))),
			func(e engines) { e.State(key(1), load.Occupancy{UsedBlocks: stated(625, at(1))}) },
		}, 31, tokens, blocks + 300},
		{"its process is gone", []func(engines){scraped(waits(8, at(0))), scraped(uses(0.5, at(0))), func(e engines) { e.Drop(key(1)) }}, 0, 200, 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, table, w := fed()
			r := reserve(table, 1, 1, 100, 10)
			reserve(table, 1, 1, 100, 10)
			e.Route(key(1), load.Routed{Kind: load.Placed, Request: []byte("a"), Router: 7, PrefillTokens: 40, Blocks: 5}, at(0))
			before := w.Version()
			for _, say := range tc.say {
				say(e)
			}
			table.Age(at(tc.at))
			f := w.Figures()
			if math.Abs(float64(f.PrefillTokens-tc.tokens)) > 1 || math.Abs(float64(f.DecodeBlocks-tc.blocks)) > 1 {
				t.Errorf("%d tokens and %d blocks, want %d and %d", f.PrefillTokens, f.DecodeBlocks, tc.tokens, tc.blocks)
			}
			if (f.PrefillTokens > tokens || f.DecodeBlocks > blocks) && w.Version() == before {
				t.Error("it became dearer, and the version is the same")
			}
			r.Release()
			if got := w.Figures(); got.PrefillTokens != f.PrefillTokens-100 || got.DecodeBlocks != f.DecodeBlocks-10 {
				t.Errorf("after a release: %+v, was %+v", got, f)
			}
		})
	}
}

// TestPromptThatHangs: requests that nobody told of take nothing off the others.
func TestPromptThatHangs(t *testing.T) {
	e, table, w := paced(t)
	defer book(table, w, 1000, at(10)).Release()
	for now := 10.0; now < 300; now++ {
		e.Scraped(key(1), waits(100, at(now)))
		table.Age(at(now))
	}
	if got := w.Ahead(at(300).UnixNano()); got < 50_000 {
		t.Errorf("%v tokens ahead of a prompt where 100 wait, of 1000 tokens each", got)
	}
}

// TestMoreThanIsBookedEqualsTwin: after whatever was said and done, what counts is
// what is booked, and what the last metrics said beyond what was booked then, fading.
func TestMoreThanIsBookedEqualsTwin(t *testing.T) {
	type request struct {
		r      *load.Reservation
		tokens int
	}
	type fact struct{ at, by float64 }
	fading := func(f fact, now float64) float64 { return math.Trunc(f.by * max(0, 1-(now-f.at)/5)) }
	rapid.Check(t, func(t *rapid.T) {
		e, table, w := fed()
		now, counter := 10.0, uint64(0)
		var live []request
		var sizes []int // of all prompts ever booked
		var waiting, inUse, stepped fact
		sums := func() (tokens, prompts, blocks int) {
			for _, r := range live {
				tokens += r.tokens
				if r.tokens > 0 {
					prompts++
				}
				blocks += 3
			}
			return tokens, prompts, blocks
		}
		mean := func() (m float64) {
			for i, n := range sizes {
				m += (float64(n) - m) / float64(i+1)
			}
			if len(sizes) == 0 {
				return 1024
			}
			return m
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				table.Age(at(now))
				tokens, _, blocks := sums()
				want := float64(tokens) + fading(stepped, now)
				if stepped.at == 0 || now-stepped.at >= 5 {
					want = float64(tokens) + fading(waiting, now)
				}
				f := w.Figures()
				if math.Abs(float64(f.PrefillTokens)-want) > 1.5 {
					t.Fatalf("%d tokens, want %v", f.PrefillTokens, want)
				}
				if want := float64(blocks) + fading(inUse, now); math.Abs(float64(f.DecodeBlocks)-want) > 1.5 {
					t.Fatalf("%d blocks, want %v", f.DecodeBlocks, want)
				}
			},
			"book": func(t *rapid.T) {
				n := rapid.IntRange(0, 100).Draw(t, "tokens")
				live = append(live, request{reserve(table, 1, 1, n, 3), n})
				if n > 0 {
					sizes = append(sizes, n)
				}
			},
			"end": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("none")
				}
				live[0].r.Release()
				live = live[1:]
			},
			"queue": func(t *rapid.T) {
				n := rapid.IntRange(0, 20).Draw(t, "requests")
				now += 1e-3 // one look has one time
				_, prompts, _ := sums()
				waiting = fact{now, math.Round(float64(max(0, n-prompts)) * mean())}
				e.Scraped(key(1), waits(n, at(now)))
			},
			"use": func(t *rapid.T) {
				n := rapid.IntRange(0, 100).Draw(t, "blocks")
				now += 1e-3
				_, _, blocks := sums()
				inUse = fact{now, float64(max(0, n-blocks))}
				e.Scraped(key(1), uses(float64(n)/1000, at(now)))
			},
			"step": func(t *rapid.T) { // of no less than is booked: TestCorrection has the rest
				n := rapid.IntRange(0, 50).Draw(t, "tokens more")
				tokens, _, _ := sums()
				counter++
				stepped = fact{now, float64(n)}
				e.Step(key(1), queue(counter, uint64(tokens+n), at(now)))
			},
			"time": func(t *rapid.T) { now += rapid.SampledFrom([]float64{0.11, 0.5, 1, 5}).Draw(t, "seconds") },
		})
	})
}
