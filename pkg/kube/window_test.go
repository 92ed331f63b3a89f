package kube

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// counts makes an observation of counters.
func counts(prompts, known, total, matched, best, received uint64) Observation {
	return Observation{
		Prompts: prompts, KnownPrompts: known, TotalBlocks: total, MatchedBlocks: matched, BestBlocks: best, FoundPrompts: best,
		Events: EventState{Connected: true, Received: received},
	}
}

func TestWindowCountsWhatHappenedWithinIt(t *testing.T) {
	var w window
	if f := w.figures(); f != (figures{}) || f.hit() != "" || f.ceiling() != "" {
		t.Errorf("an empty window says %+v", f)
	}
	w.add(epoch, counts(1000, 1000, 50_000, 1000, 1000, 7))
	if f := w.figures(); f.Prompts != 0 || f.hit() != "" {
		t.Errorf("what was before the window counts: %+v", f)
	}
	w.add(epoch.Add(sampleEvery), counts(1010, 1009, 51_000, 1834, 1910, 9))
	want := figures{Span: sampleEvery, Prompts: 10, Known: 9, Total: 1000, Matched: 834, Best: 910, Found: 910, Received: 2}
	if f := w.figures(); f != want {
		t.Errorf("figures = %+v, want %+v", f, want)
	} else if f.hit() != "83.4%" || f.ceiling() != "91.0%" {
		t.Errorf("hit %q, ceiling %q", f.hit(), f.ceiling())
	}
	w.add(epoch.Add(windowLength+sampleEvery), counts(1010, 1009, 51_000, 1834, 1910, 9))
	if f := w.figures(); f.Prompts != 0 || f.Span != windowLength {
		t.Errorf("what is older than the window counts: %+v", f)
	}
}

// A window sees what a list of all observations sees.
func TestWindowIsTheLastMinutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			w    window
			all  []sample
			at   = epoch
			seen uint64
		)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			at = at.Add(sampleEvery + time.Duration(rapid.IntRange(0, 20).Draw(t, "late"))*time.Second)
			seen += uint64(rapid.IntRange(0, 5).Draw(t, "prompts"))
			w.add(at, counts(seen, seen, 0, 0, 0, 0))
			all = append(all, sample{at, counts(seen, seen, 0, 0, 0, 0)})
		}
		oldest := all[len(all)-1]
		for _, s := range all {
			if at.Sub(s.at) <= windowLength {
				oldest = s
				break
			}
		}
		if got, want := w.figures().Prompts, seen-oldest.obs.Prompts; got != want {
			t.Fatalf("%d prompts in the window, want %d", got, want)
		}
		if most := int(windowLength/sampleEvery) + 1; len(w.samples) > most {
			t.Fatalf("%d observations are kept, at most %d are needed", len(w.samples), most)
		}
	})
}

func TestWindowForgivesACounterThatBeganAnew(t *testing.T) {
	var w window
	w.add(epoch, counts(1000, 0, 0, 0, 0, 0))
	w.add(epoch.Add(sampleEvery), counts(3, 0, 0, 0, 0, 0))
	if f := w.figures(); f.Prompts != 0 {
		t.Errorf("%d prompts after a counter went back", f.Prompts)
	}
}

// An idle pool is judged by its last busy window.
func TestWindowKeepsTheLastVerdict(t *testing.T) {
	var w window
	w.add(epoch, counts(0, 0, 0, 0, 0, 0))
	w.add(epoch.Add(time.Minute), counts(30, 30, 300, 100, 200, 1))
	busy := w.figures()
	for i := range 100 {
		w.add(epoch.Add(time.Minute+time.Duration(i)*sampleEvery), counts(30, 30, 300, 100, 200, 1))
	}
	if f := w.figures(); f.Prompts != 0 {
		t.Fatalf("the window still has %d prompts", f.Prompts)
	}
	if f := w.judged(); f.Prompts != 30 || f.Matched != busy.Matched {
		t.Errorf("judged by %+v, want the last busy window %+v", f, busy)
	}
}

func TestRate(t *testing.T) {
	for _, tc := range []struct {
		part, whole uint64
		want        string
	}{
		{0, 0, ""},
		{5, 0, ""},
		{0, 7, "0.0%"},
		{834, 1000, "83.4%"},
		{7, 7, "100.0%"},
		{8, 7, "100.0%"},
		{1<<63 - 1, 1 << 63, "100.0%"},
	} {
		if got := rate(tc.part, tc.whole); got != tc.want {
			t.Errorf("rate(%d, %d) = %q, want %q", tc.part, tc.whole, got, tc.want)
		}
	}
}
