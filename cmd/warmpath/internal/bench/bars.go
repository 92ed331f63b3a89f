package bench

import (
	"fmt"
	"strings"
)

// target is what a case must reach. Zero asks for nothing.
type target struct {
	name              string
	workers, holders  int     // 0: any
	speed             float64 // at least, blocks/s
	p50, p99, longest float64 // at most, us
	bytes             float64 // at most, per entry
	lookups           float64 // at least
}

// targets are set beside the best index there is, Dynamo's, on the same kind of
// machine (peers.md section E): at least as fast, in half the memory. The first
// that fits a row counts.
var targets = []target{
	{name: "apply", workers: 64, holders: 1, speed: 5e6},
	{name: "apply", workers: 64, holders: 8, speed: 6e6},
	{name: "apply-wire", workers: 64, speed: 4e6},
	{name: "apply-vllm", speed: 2e6},
	{name: "match-128", workers: 64, p50: 2.5, p99: 5},
	{name: "match-128-writer", workers: 64, p50: 3, p99: 6},
	{name: "match-128-drop", workers: 64, p50: 3, p99: 6},
	{name: "match-128-branchy", workers: 64, p50: 5, p99: 9},
	{name: "match-1000", workers: 64, p50: 2, p99: 3},
	{name: "memory", workers: 64, holders: 1, bytes: 48},
	{name: "memory", workers: 64, holders: 8, bytes: 24},
	{name: "memory", workers: 64, holders: 64, bytes: 20},
	{name: "memory-branchy", bytes: 80},
	{name: "drop", workers: 64, p50: 1000},
	{name: "hash", p50: 8},
	{name: "hash-chains", p50: 5},
	{name: "snapshot", p50: 1e6},
	{name: "gc-pause", p99: 1000, longest: 1000},
	{name: "backlog", lookups: 37}, // Dynamo's single-thread index answers 2 to 36
}

func (t *target) fits(r *CaseRow) bool {
	return t.name == r.Name && (t.workers == 0 || t.workers == r.Workers) && (t.holders == 0 || t.holders == r.Holders)
}

// bar says what a row must reach, and by how much it is missed if it is. "-" where
// no bar is set.
func bar(r *CaseRow) string {
	for i := range targets {
		if targets[i].fits(r) {
			return targets[i].judge(r)
		}
	}
	return "-"
}

func (t *target) judge(r *CaseRow) string {
	var asked, missed []string
	ask := func(limit, got, unit float64, text string, least bool) {
		if limit == 0 {
			return
		}
		asked = append(asked, fmt.Sprintf(text, limit/unit))
		if over := got / limit; least && over < 1 || !least && over > 1 {
			missed = append(missed, fmt.Sprintf("%.2f of it", over))
		}
	}
	ask(t.speed, r.BlocksPerS, 1e6, "%g M/s", true)
	ask(t.lookups, r.Lookups, 1, "%g lookups", true)
	ask(t.p50, r.P50US, 1, "p50 %g us", false)
	ask(t.p99, r.P99US, 1, "p99 %g us", false)
	ask(t.longest, max(0, r.MaxUS-r.BaselineMaxUS), 1, "longest %g us beyond the baseline's", false)
	ask(t.bytes, r.BytesPerEntry, 1, "%g bytes", false)
	text := strings.Join(asked, ", ")
	if len(missed) > 0 {
		return text + ": MISSED, " + strings.Join(missed, ", ")
	}
	return text
}
