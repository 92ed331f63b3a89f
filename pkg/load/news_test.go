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
// the two seconds of which nothing is known yet. Other words of theirs come at once.
func TestNewsThatIsLate(t *testing.T) {
	e, table, w := paced(t)
	const late, every, tokens = 2.0, 0.5, 100
	now := 10.0
	for i := range 2000 {
		now += every
		id := fmt.Append(nil, i)
		e.Route(key(1), load.Routed{Kind: load.Placed, Request: id, Router: 7, PrefillTokens: tokens, At: millis(at(now - late))}, at(now))
		for _, k := range []load.RoutedKind{load.PrefillDone, load.Finished} {
			e.Route(key(1), load.Routed{Kind: k, Request: id, Router: 7, At: millis(at(now))}, at(now))
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

// TestNewsByOddClocks: a clock that is ahead or far behind makes no word late, a word
// that takes longer than others is late all the same, and a router may not say the time.
func TestNewsByOddClocks(t *testing.T) {
	for behind, late := range map[time.Duration][3]float64{ // that words count as
		0:               {0.5, 0.5, 2.5},
		3 * time.Second: {3.5, 3.5, 5.5}, // cannot be told
		-time.Second:    {0, 0, 2},
		time.Minute:     {0, 0, 2},
		time.Hour:       {0, 0, 2},
		-time.Hour:      {0, 0, 2},
	} {
		e, table, w := fed()
		say := func(id string, s, late float64) {
			said := at(s - late).Add(-behind)
			e.Route(key(1), load.Routed{Kind: load.Placed, Request: []byte(id), Router: 7, PrefillTokens: 1200, At: millis(said)}, at(s))
		}
		check := func(s, want float64) {
			t.Helper()
			table.Age(at(s))
			if got := w.Ahead(at(s).UnixNano()); math.Abs(got-want) > 1 {
				t.Errorf("a clock %v behind, at %v s: %v tokens, want %v", behind, s, got, want)
			}
		}
		say("a", 1_000_000, 0.5)
		say("b", 1_000_000.2, 0.5)
		check(1_000_000.2, 2400+10*(late[0]+late[1]))
		say("c", 1_000_000.4, 2.5)
		check(1_000_000.4, 3600+10*(late[0]+late[1]+late[2]))
	}
	for name, said := range map[string]uint64{"not said": 0, "beyond all times": math.MaxUint64, "long ago": 1, "in days": millis(at(1_200_000))} {
		e, _, w := fed()
		for i, said := range []uint64{millis(at(1_000_000)), said, millis(at(1_000_000))} {
			e.Route(key(1), load.Routed{Kind: load.Placed, Request: fmt.Append(nil, i), Router: 7, PrefillTokens: 1200, At: said}, at(1_000_000))
		}
		if got := w.Ahead(at(1_000_000).UnixNano()); !near(got, 3600) {
			t.Errorf("%s: %v tokens, want 3600", name, got)
		}
	}
}

// TestClockThatIsSet: words are late for two minutes at most once a router's clock was
// put back.
func TestClockThatIsSet(t *testing.T) {
	e, table, w := fed()
	const start = 1_000_000.0
	for i := range 600 {
		now := start + float64(i)
		said := at(now)
		if i >= 60 {
			said = said.Add(-time.Hour)
		}
		id := fmt.Append(nil, i)
		for _, k := range []load.RoutedKind{load.Placed, load.Finished} {
			e.Route(key(1), load.Routed{Kind: k, Request: id, Router: 7, PrefillTokens: 100, At: millis(said)}, at(now))
		}
		table.Age(at(now))
		most := 1000.0 // 10 s of what comes
		if i >= 180 {
			most *= math.Exp(-float64(i-180) / 120)
		}
		if got := w.Ahead(at(now).UnixNano()); got > most+1 || i < 60 && got > 1e-6 {
			t.Fatalf("after %d s: %v tokens, want at most %v", i, got, most)
		}
	}
}

// TestManyClocks: of more routers than are followed none is late; when some fell
// silent, others take their place.
func TestManyClocks(t *testing.T) {
	e, _, w := fed()
	say := func(router uint64, s, late float64) {
		for _, k := range []load.RoutedKind{load.Placed, load.Finished} {
			e.Route(key(1), load.Routed{Kind: k, Request: fmt.Append(nil, router, s), Router: router, PrefillTokens: 1200, At: millis(at(s - late))}, at(s))
		}
	}
	const start = 1_000_000.0
	late := func(router uint64, s float64) bool {
		before := w.Ahead(at(s).UnixNano())
		say(router, s, 0)
		say(router, s+1, 5)
		return w.Ahead(at(s+1).UnixNano()) > before+1
	}
	for router := range uint64(256) {
		say(router+10, start, 0)
	}
	if late(1000, start) {
		t.Error("a router too many is followed")
	}
	if !late(10, start) {
		t.Error("a router that was followed is not any more")
	}
	if !late(1000, start+130) {
		t.Error("the others are silent, and still no other is followed")
	}
}

// plainAhead is the rule, from all that ever happened.
type plainAhead struct {
	words []struct{ took, at float64 }
	open  map[int]float64 // tokens by request
	since float64
	heard []struct{ tokens, late, at float64 }
}

// late is what a word took, but where the quickest since the turn before this one
// began took less than no time or more than 10 s: then it is what it took longer than
// that. A turn begins with the first word a minute after the last began.
func (p *plainAhead) late(took, now float64) float64 {
	p.words = append(p.words, struct{ took, at float64 }{took, now})
	turns := []float64{p.words[0].at}
	for _, w := range p.words {
		if w.at-turns[len(turns)-1] >= 60 {
			turns = append(turns, w.at)
		}
	}
	from := turns[len(turns)-1]
	if n := len(turns); n > 1 && turns[n-1]-turns[n-2] < 120 {
		from = turns[n-2]
	}
	least := took
	for _, w := range p.words {
		if w.at >= from {
			least = min(least, w.took)
		}
	}
	if least >= 0 && least <= 10 {
		return min(10, took)
	}
	return min(10, took-least)
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
		behind := rapid.SampledFrom([]float64{0, -3600, -20, 2, 3600}).Draw(t, "behind")
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += float64(rapid.IntRange(2, 80).Draw(t, "tenths of a second")) / 10
			late := float64(rapid.IntRange(0, 99).Draw(t, "late, in tenths of a second")) / 10
			tokens := rapid.IntRange(1, 5000).Draw(t, "tokens")
			which := rapid.IntRange(0, i).Draw(t, "which")
			word := load.Routed{Kind: load.Placed, Request: fmt.Append(nil, i), Router: 7, PrefillTokens: uint64(tokens), At: millis(at(now - late - behind))}
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
				late := twin.late(late+behind, now)
				twin.place(i, float64(tokens), now-late)
				twin.heard = append(twin.heard, struct{ tokens, late, at float64 }{float64(tokens), late, now})
			case 3:
				if foreign[which] {
					word.Kind, word.Request = load.PrefillDone, fmt.Append(nil, which)
					e.Route(key(1), word, at(now))
					delete(foreign, which)
					twin.done(which, now-twin.late(late+behind, now))
				}
			}
			table.Age(at(now))
			if got, want := w.Ahead(at(now).UnixNano()), twin.ahead(now, w.Figures().SecondsPerToken); !near(got, want) {
				t.Fatalf("%v tokens, want %v", got, want)
			}
		}
	})
}
