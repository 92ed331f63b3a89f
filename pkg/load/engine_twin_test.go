package load_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// heardWord is a word about a request, as it was said.
type heardWord struct {
	k  fleet.Key
	r  load.Routed
	at time.Time
}

// dropped stands in the list of words for a call of Drop.
const dropped load.RoutedKind = 255

// twin remembers all that was ever said, and works out figures from that alone.
type twin struct {
	words  []heardWord
	states map[fleet.Key][]load.Occupancy
	steps  map[fleet.Key][]load.Step
}

// foreign replays the words about a worker, with plain facts per request.
func (w *twin) foreign(k fleet.Key, now time.Time) (f load.Foreign) {
	type facts struct {
		since                time.Time
		open, done, finished bool
		tokens               uint64
		request              string
		router               uint64
	}
	var all []*facts
	age := func(at time.Time) {
		all = slices.DeleteFunc(all, func(f *facts) bool {
			if f.open {
				return at.Sub(f.since) >= 300*time.Second
			}
			return at.Sub(f.since) >= 60*time.Second
		})
	}
	for _, word := range w.words {
		age(word.at)
		if word.k != k {
			continue
		}
		if word.r.Kind == dropped {
			all = slices.DeleteFunc(all, func(f *facts) bool { return f.open })
			continue
		}
		i := slices.IndexFunc(all, func(f *facts) bool { return f.request == string(word.r.Request) && f.router == word.r.Router })
		if i < 0 {
			i = len(all)
			all = append(all, &facts{since: word.at, request: string(word.r.Request), router: word.r.Router})
		}
		f := all[i]
		switch word.r.Kind {
		case load.Placed:
			if f.open || f.finished {
				continue
			}
			f.open, f.since, f.tokens = true, word.at, word.r.PrefillTokens
			for _, o := range all {
				f.done = f.done || o.request == f.request && o.router == k.ID && o.done
			}
		case load.PrefillDone:
			f.done = true
			for _, o := range all {
				o.done = o.done || f.router == k.ID && o.request == f.request
			}
		case load.Finished:
			if !f.finished {
				f.open, f.finished, f.since = false, true, word.at
			}
		}
	}
	age(now)
	for _, o := range all {
		if o.open {
			f.Requests++
			if !o.done {
				f.PrefillTokens += o.tokens
			}
		}
	}
	return f
}

// occupancy picks the latest of each field.
func (w *twin) occupancy(k fleet.Key) (o load.Occupancy) {
	pick := func(of func(load.Occupancy) load.Reading) (r load.Reading) {
		for _, s := range w.states[k] {
			if of(s).Known() && !of(s).At.Before(r.At) {
				r = of(s)
			}
		}
		return r
	}
	o.DecodeBlocks = pick(func(o load.Occupancy) load.Reading { return o.DecodeBlocks })
	o.PrefillTokens = pick(func(o load.Occupancy) load.Reading { return o.PrefillTokens })
	o.UsedBlocks = pick(func(o load.Occupancy) load.Reading { return o.UsedBlocks })
	return o
}

// batches picks what the last step that is no late one said.
func (w *twin) batches(k fleet.Key) (scheduled, queued load.Batch) {
	var last load.Step
	var when time.Time
	for _, s := range w.steps[k] {
		at := s.Queued.At
		if !when.IsZero() && s.Counter <= last.Counter && at.Sub(when) < 5*time.Second {
			continue
		}
		last, when = s, at
		queued = s.Queued
		if s.Scheduled.Known() {
			scheduled = s.Scheduled
		}
	}
	return scheduled, queued
}

func (w *twin) drop(k fleet.Key, now time.Time) {
	delete(w.states, k)
	delete(w.steps, k)
	w.words = append(w.words, heardWord{k: k, r: load.Routed{Kind: dropped}, at: now})
}

// TestEnginesEqualTwin says random things in random order, some more than once,
// and compares all figures after each.
func TestEnginesEqualTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := load.NewEngines()
		w := &twin{states: map[fleet.Key][]load.Occupancy{}, steps: map[fleet.Key][]load.Step{}}
		now := start
		keys := rapid.SampledFrom([]fleet.Key{{ID: 1}, {ID: 1, Rank: 1}, {ID: 2}})
		maybe := func(t *rapid.T, name string) load.Reading {
			if rapid.Bool().Draw(t, name+" stated") {
				return load.Reading{N: rapid.Uint64Range(0, 99).Draw(t, name), At: now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "late")) * time.Second)}
			}
			return load.Reading{}
		}
		route := func(h heardWord) {
			h.at = now
			w.words = append(w.words, h)
			e.Route(h.k, h.r, now)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, k := range []fleet.Key{{ID: 1}, {ID: 1, Rank: 1}, {ID: 2}} {
					got := e.Get(k, now, forever)
					want := load.EngineFigures{Occupancy: w.occupancy(k), Foreign: w.foreign(k, now)}
					want.Scheduled, want.Queued = w.batches(k)
					if got != want {
						t.Fatalf("worker %v: %+v, want %+v", k, got, want)
					}
				}
			},
			"word": func(t *rapid.T) {
				route(heardWord{k: keys.Draw(t, "worker"), r: load.Routed{
					Kind:          rapid.SampledFrom([]load.RoutedKind{load.Placed, load.PrefillDone, load.Finished}).Draw(t, "kind"),
					Request:       []byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "request")),
					Router:        rapid.SampledFrom([]uint64{1, 7, 8}).Draw(t, "router"),
					PrefillTokens: rapid.Uint64Range(0, 99).Draw(t, "tokens"),
				}})
			},
			"again": func(t *rapid.T) {
				if len(w.words) == 0 {
					t.Skip("none")
				}
				h := rapid.SampledFrom(w.words).Draw(t, "word")
				if h.r.Kind == dropped {
					t.Skip("no word")
				}
				route(h)
			},
			"state": func(t *rapid.T) {
				k, o := keys.Draw(t, "worker"), load.Occupancy{DecodeBlocks: maybe(t, "decode"), PrefillTokens: maybe(t, "prefill"), UsedBlocks: maybe(t, "used")}
				w.states[k] = append(w.states[k], o)
				e.State(k, o)
			},
			"step": func(t *rapid.T) {
				k, s := keys.Draw(t, "worker"), step(rapid.Uint64Range(0, 9).Draw(t, "counter"), rapid.Uint64Range(0, 99).Draw(t, "tokens"), now)
				if rapid.Bool().Draw(t, "queue only") {
					s.Scheduled = load.Batch{}
				}
				w.steps[k] = append(w.steps[k], s)
				e.Step(k, s)
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.SampledFrom([]int{1, 2, 10, 59, 60, 150, 300}).Draw(t, "seconds")) * time.Second)
			},
			"drop": func(t *rapid.T) {
				k := keys.Draw(t, "worker")
				w.drop(k, now)
				e.Drop(k)
			},
		})
	})
}

// TestOrderDoesNotMatter: the same words in any order, any of them twice, leave
// the same figures: a request counts when it was placed and has not ended.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const worker = 1
		var words []load.Routed
		var want load.Foreign
		for i := range rapid.IntRange(1, 6).Draw(t, "requests") {
			request, tokens := []byte(fmt.Sprint("r", i)), rapid.Uint64Range(0, 99).Draw(t, "tokens")
			facts := rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 1, 4, rapid.ID).Draw(t, "facts")
			for _, fact := range facts {
				words = append(words, []load.Routed{
					{Kind: load.Placed, Request: request, Router: 7, PrefillTokens: tokens},
					{Kind: load.Finished, Request: request, Router: 7},
					{Kind: load.PrefillDone, Request: request, Router: 7},
					{Kind: load.PrefillDone, Request: request, Router: worker},
				}[fact])
			}
			if slices.Contains(facts, 0) && !slices.Contains(facts, 1) {
				want.Requests++
				if !slices.Contains(facts, 2) && !slices.Contains(facts, 3) {
					want.PrefillTokens += tokens
				}
			}
		}
		words = append(words, rapid.SliceOf(rapid.SampledFrom(words)).Draw(t, "twice")...)
		words = rapid.Permutation(words).Draw(t, "order")
		e := load.NewEngines()
		for _, r := range words {
			e.Route(key(worker), r, start)
		}
		if got := e.Get(key(worker), start, forever).Foreign; got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}
