package load_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/load"
)

// perToken is what paced workers take for a token.
const perToken = 0.001 // seconds

// paced is a table that is fed, with one worker whose pace is known.
func paced(t interface{ Fatalf(string, ...any) }) (*load.Engines, *load.Table, *load.Worker) {
	e, table, w := fed()
	for i := range 4 {
		r := book(table, w, 1000, at(float64(i)))
		r.PrefillDone(at(float64(i + 1)))
		r.Release()
	}
	if got := w.Figures().SecondsPerToken; math.Abs(got-perToken) > 1e-9 {
		t.Fatalf("a token takes %v s, want %v", got, perToken)
	}
	return e, table, w
}

func book(table *load.Table, w *load.Worker, tokens int, now time.Time) *load.Reservation {
	table.Lock()
	defer table.Unlock()
	return table.Reserve(load.Booking{At: now, PrefillTokens: tokens, PrefillKey: key(1), DecodeKey: key(1), Prefill: w, Decode: w})
}

func millis(t time.Time) uint64 { return uint64(t.Round(time.Millisecond).UnixMilli()) }

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6*(1+math.Abs(b)) }

func TestAheadOfAPrompt(t *testing.T) {
	_, table, w := paced(t)
	ahead := func(s, want float64) {
		t.Helper()
		if got := w.Ahead(at(s).UnixNano()); !near(got, want) {
			t.Errorf("at %v s: %v tokens, want %v", s, got, want)
		}
	}
	ahead(10, 0)
	first, second := book(table, w, 2000, at(10)), book(table, w, 1000, at(11))
	ahead(10, 3000)
	ahead(11, 2000)
	ahead(11.4, 1600)
	ahead(12, 1500) // it should have been done: half of what waits is taken off, as two prompts do
	ahead(500, 1500)
	first.PrefillDone(at(12.5)) // later than expected: the second was begun then
	ahead(12.5, 1000)
	second.Release() // aborted
	ahead(13, 0)
	first.Release()
}

func TestAheadWithoutPace(t *testing.T) {
	_, table, w := fed()
	defer book(table, w, 2000, at(10)).Release()
	if got := w.Ahead(at(11).UnixNano()); got != 2000 {
		t.Errorf("%v tokens, want all 2000: nothing is known of the worker's speed", got)
	}
}

// What others place every half second, and tell two seconds later, is expected for
// the two seconds of which nothing is known yet.
func TestNewsThatIsLate(t *testing.T) {
	e, table, w := paced(t)
	const late, every, tokens = 2.0, 0.5, 100
	now := 10.0
	for i := range 2000 {
		now += every
		id := fmt.Append(nil, i)
		for _, k := range []load.RoutedKind{load.Placed, load.PrefillDone, load.Finished} {
			e.Route(key(1), load.Routed{Kind: k, Request: id, Router: 7, PrefillTokens: tokens, At: millis(at(now - late))}, at(now))
		}
	}
	if got, want := w.Ahead(at(now).UnixNano()), late*tokens/every; math.Abs(got-want) > want/100 {
		t.Errorf("%v tokens are expected, want %v", got, want)
	}
	table.Age(at(now + 240))
	if got, want := w.Ahead(at(now+240).UnixNano()), late*tokens/every*math.Exp(-2); math.Abs(got-want) > want/100 {
		t.Errorf("four minutes later %v tokens are expected, want %v", got, want)
	}
}

// Clocks of others may be ahead, or far behind; and a router may not say the time.
func TestNewsByOddClocks(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   uint64
		want float64
	}{
		{"not said", 0, 0},
		{"from the future", millis(at(1000)), 0},
		{"beyond all times", math.MaxUint64, 0},
		{"an hour ago", millis(at(0).Add(-time.Hour)), 1200 * 10 / 120.0},
	} {
		e, _, w := fed()
		e.Route(key(1), load.Routed{Kind: load.Placed, Request: []byte("a"), Router: 7, PrefillTokens: 1200, At: tc.at}, at(20))
		if got := w.Ahead(at(20).UnixNano()); !near(got, 1200+tc.want) {
			t.Errorf("%s: %v tokens, want %v", tc.name, got, 1200+tc.want)
		}
	}
}

// plainAhead is the rule, from all that ever happened.
type plainAhead struct {
	open  map[int]float64 // tokens by request
	since float64
	heard []struct{ tokens, late, at float64 }
}

func (p *plainAhead) place(id int, tokens, said float64) {
	if len(p.open) == 0 {
		p.since = max(p.since, said)
	}
	p.open[id] = tokens
}

func (p *plainAhead) done(id int, said float64) {
	delete(p.open, id)
	p.since = max(p.since, said)
}

func (p *plainAhead) ahead(now, pace float64) float64 {
	queued, coming := 0.0, 0.0
	for _, tokens := range p.open {
		queued += tokens
	}
	for _, h := range p.heard {
		coming += h.tokens * h.late / 120 * math.Exp(-(now-h.at)/120)
	}
	if len(p.open) == 0 {
		return coming
	}
	return coming + queued - min(queued/float64(len(p.open)), max(0, (now-p.since)/pace))
}

func TestAheadIsLikeItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, table, w := paced(t)
		twin := plainAhead{open: map[int]float64{}, since: 4}
		own, foreign := map[int]*load.Reservation{}, map[int]bool{}
		now := 10.0
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += float64(rapid.IntRange(2, 80).Draw(t, "tenths of a second")) / 10
			late := float64(rapid.IntRange(0, 99).Draw(t, "late, in tenths of a second")) / 10
			tokens := rapid.IntRange(1, 5000).Draw(t, "tokens")
			which := rapid.IntRange(0, i).Draw(t, "which")
			word := load.Routed{Kind: load.Placed, Request: fmt.Append(nil, i), Router: 7, PrefillTokens: uint64(tokens), At: millis(at(now - late))}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				own[i] = book(table, w, tokens, at(now))
				twin.place(i, float64(tokens), now)
			case 1:
				if own[which] != nil {
					own[which].PrefillDone(at(now))
					delete(own, which)
					twin.done(which, now)
				}
			case 2:
				e.Route(key(1), word, at(now))
				foreign[i] = true
				twin.place(i, float64(tokens), now-late)
				twin.heard = append(twin.heard, struct{ tokens, late, at float64 }{float64(tokens), late, now})
			case 3:
				if foreign[which] {
					word.Kind, word.Request = load.PrefillDone, fmt.Append(nil, which)
					e.Route(key(1), word, at(now))
					delete(foreign, which)
					twin.done(which, now-late)
				}
			}
			table.Age(at(now))
			if got, want := w.Ahead(at(now).UnixNano()), twin.ahead(now, w.Figures().SecondsPerToken); !near(got, want) {
				t.Fatalf("%v tokens, want %v", got, want)
			}
		}
	})
}
