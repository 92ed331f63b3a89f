package app

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// totals adds up what the parts of all generations count, so that no counter goes
// back when a policy replaces a part.
type totals struct {
	mu      sync.Mutex
	parts   []counting
	before  map[series]uint64 // of parts that have ended
	heard   uint64            // KV events that those read
	strange uint64            // and of these, those of strangers
}

// counting is a part that counts.
type counting interface {
	// counters tells all counts of the part.
	counters(emitCounter)
	// of is the part itself.
	of() *part
}

func (e *events) of() *part { return &e.part }

func (t *promptTokens) of() *part { return &t.part }

func (t *promptTokens) counters(counter emitCounter) {
	if t.inProcess != nil {
		t.inProcess.counters(counter)
	}
}

// series is one counter.
type series struct {
	desc *prometheus.Desc
	text string // its labels
}

// between separates labels: it is no UTF-8, as labels are.
const between = "\xff"

func seriesOf(d *prometheus.Desc, labels []string) series {
	return series{d, strings.Join(labels, between)}
}

func (s series) labels() []string {
	if s.text == "" {
		return nil
	}
	return strings.Split(s.text, between)
}

// perWorker are the families with a worker in their first two labels.
var perWorker = []*prometheus.Desc{descRecovered, descResyncs, descEvents, descGaps, descMissed, descRestarts, descUnused, descStrays}

// gone says whether a series is about a worker that the pool does not have.
func (s series) gone(pool *fleet.Snapshot) bool {
	if !slices.Contains(perWorker, s.desc) {
		return false
	}
	labels := s.labels()
	id, err := strconv.ParseUint(labels[0], 10, 64)
	rank, err2 := strconv.ParseUint(labels[1], 10, 32)
	_, listed := pool.Index(fleet.Key{ID: id, Rank: uint32(rank)})
	return err != nil || err2 != nil || !listed
}

func countingOf(g *generation) []counting {
	if g.tokenizer == nil {
		return []counting{g.events}
	}
	return []counting{g.events, g.tokenizer}
}

// join counts the parts of a generation from now on.
func (t *totals) join(g *generation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range countingOf(g) {
		if !slices.Contains(t.parts, c) {
			t.parts = append(t.parts, c)
		}
	}
}

// leave keeps the last counts of parts that have ended. Those of workers that the
// pool does not have are let go: pods come and go, and would add up.
func (t *totals) leave(g *generation, ended []*part, pool *fleet.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before == nil {
		t.before = map[series]uint64{}
	}
	for _, c := range countingOf(g) {
		if !slices.Contains(ended, c.of()) {
			continue
		}
		c.counters(addTo(t.before))
		if e, ok := c.(*events); ok {
			heard, strange := e.heard()
			t.heard, t.strange = t.heard+heard, t.strange+strange
		}
		t.parts = slices.DeleteFunc(t.parts, func(other counting) bool { return other == c })
	}
	maps.DeleteFunc(t.before, func(s series, _ uint64) bool { return s.gone(pool) })
}

func addTo(sum map[series]uint64) emitCounter {
	return func(d *prometheus.Desc, n uint64, labels ...string) { sum[seriesOf(d, labels)] += n }
}

// sum returns all counters.
func (t *totals) sum() map[series]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := maps.Clone(t.before)
	if sum == nil {
		sum = map[series]uint64{}
	}
	for _, c := range t.parts {
		c.counters(addTo(sum))
	}
	return sum
}

// events returns the KV events that were read, and those of strangers.
func (t *totals) events() (heard, strange uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	heard, strange = t.heard, t.strange
	for _, c := range t.parts {
		if e, ok := c.(*events); ok {
			h, s := e.heard()
			heard, strange = heard+h, strange+s
		}
	}
	return heard, strange
}

func (e *events) heard() (all, strange uint64) {
	if e.plane == nil {
		return 0, 0
	}
	s := e.plane.Stats()
	return s.Decode.Events, s.Strangers
}
