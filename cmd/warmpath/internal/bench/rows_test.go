package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMedians(t *testing.T) {
	var rounds [][]CaseRow
	for _, v := range []float64{3, 1, 2} {
		rounds = append(rounds, []CaseRow{{Name: "a", Cores: 2, P50US: v, Missed: 10 - v}, {Name: "b", BlocksPerS: 10 * v}})
	}
	got := medians(rounds)
	want := []CaseRow{{Name: "a", Cores: 2, P50US: 2, Missed: 8}, {Name: "b", BlocksPerS: 20}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

func TestBars(t *testing.T) {
	for _, c := range []struct {
		row  CaseRow
		want string
	}{
		{CaseRow{Name: "apply", Workers: 64, Holders: 1, BlocksPerS: 6e6}, "5 M/s"},
		{CaseRow{Name: "apply", Workers: 64, Holders: 8, BlocksPerS: 3e6}, "6 M/s: MISSED, 0.50 of it"},
		{CaseRow{Name: "apply", Workers: 8, Holders: 1, BlocksPerS: 1}, "-"},
		{CaseRow{Name: "match-128", Workers: 64, Holders: 1, P50US: 1, P99US: 6}, "p50 2.5 us, p99 5 us: MISSED, 1.20 of it"},
		{CaseRow{Name: "memory-branchy", Workers: 64, Holders: 1, BytesPerEntry: 81}, "80 bytes: MISSED, 1.01 of it"},
		{CaseRow{Name: "drop", Workers: 64, Holders: 64, P50US: 999}, "p50 1000 us"},
		{CaseRow{Name: "gc-pause", Workers: 1000, MaxUS: 2000}, "p99 1000 us, longest 1000 us beyond the baseline's: MISSED, 2.00 of it"},
		{CaseRow{Name: "gc-pause", Workers: 1000, MaxUS: 2000, BaselineMaxUS: 1500}, "p99 1000 us, longest 1000 us beyond the baseline's"},
		{CaseRow{Name: "backlog", Workers: 8, Lookups: 36}, "37 lookups: MISSED, 0.97 of it"},
	} {
		if got := bar(&c.row); got != c.want {
			t.Errorf("%s, %d workers, %d holders: %q, want %q", c.row.Name, c.row.Workers, c.row.Holders, got, c.want)
		}
	}
}

// Every form holds every row.
func TestWriteRows(t *testing.T) {
	rows := []CaseRow{{Name: "apply", Workers: 64, Holders: 1, Entries: 9, BlocksPerS: 5.5e6, Cores: 2}, {Name: "backlog", Workers: 8, Lookups: 7}}
	for form, want := range map[Output][]string{
		Markdown: {"| case | workers |", "| --- | ---: |", "| apply | 64 | 1 | 9 | 5.50 | - |", "| backlog | 8 |", "7 lookups"},
		Table:    {"case", "apply", "5.50", "backlog", "7 lookups"},
		JSON:     {`"name":"apply","workers":64,"holders":1,"entries":9,"blocks_per_s":5500000,"cores":2`, `"lookups":7`},
	} {
		var out bytes.Buffer
		if err := writeRows(&out, form, indexColumns, rows); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s lacks %q:\n%s", form, w, out.String())
			}
		}
	}
	if _, err := ParseOutput("yaml"); err == nil {
		t.Error("yaml is a form")
	}
}

// The search ends within its precision below what works, wherever it begins.
func TestSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Float64Range(1e3, 1e8).Draw(t, "limit")
		from := limit * rapid.Float64Range(0.01, 8).Draw(t, "from")
		best, err := search(from, func(rate float64) (float64, bool, error) { return rate, rate <= limit, nil })
		if err != nil || best > limit || best < limit/precision/1.0001 {
			t.Fatalf("%v, %v, want just below %v", best, err, limit)
		}
	})
	if _, err := search(1e6, func(float64) (int, bool, error) { return 0, false, nil }); err == nil {
		t.Error("a rate was found although none works")
	}
}

func TestFaults(t *testing.T) {
	sound := published{blocks: 64, planned: time.Second}
	sound.sent = tally{Messages: 1, Events: 5, Blocks: 64, Elapsed: time.Second}
	for want, spoil := range map[string]func(*published){
		"":                                     func(*published) {},
		"dropped":                              func(r *published) { r.heard.dropped = 1 },
		"missed":                               func(r *published) { r.heard.missed = 1 },
		"should be":                            func(r *published) { r.heard.trouble = 1 },
		"of 64":                                func(r *published) { r.blocks-- },
		"publishers and server were 2s behind": func(r *published) { r.sent.Elapsed = 3 * time.Second },
		"plane and index were 1s behind":       func(r *published) { r.late = time.Second },
	} {
		r := sound
		spoil(&r)
		if got := r.fault(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPauses(t *testing.T) {
	var out bytes.Buffer
	if err := BaselinePauses(&out); err != nil {
		t.Fatal(err)
	}
	var p pauses
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if p.P99US <= 0 || p.MaxUS < p.P99US || math.IsInf(p.MaxUS, 0) {
		t.Errorf("%+v", p)
	}
}
