package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/simengine"
)

// metric returns the sum over all series of a metric of the picker that have the
// labels, each given as it is written: name="value".
func (s *stack) metric(name string, labels ...string) float64 {
	s.t.Helper()
	return sum(s.t, get(s.t, s.admin+"/metrics").body, name, labels...)
}

func sum(t *testing.T, metrics, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
series:
	for line := range strings.Lines(metrics) {
		head, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || head != name && !strings.HasPrefix(head, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(head, l) {
				continue series
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %s: %v", line, err)
		}
		sum += v
	}
	return sum
}

// awaitMetric waits until a metric has a value.
func (s *stack) awaitMetric(want float64, name string, labels ...string) {
	s.t.Helper()
	eventually(s.t, name+" is "+strconv.FormatFloat(want, 'g', -1, 64), func() bool { return s.metric(name, labels...) == want })
}

// idle waits until no request is under way and nothing is reserved.
func (s *stack) idle() {
	s.t.Helper()
	eventually(s.t, "no request is under way and nothing is reserved", func() bool {
		metrics := get(s.t, s.admin+"/metrics").body
		n := 0.0
		for _, name := range []string{"streams", "worker_requests", "worker_prefill_tokens", "worker_decode_blocks"} {
			n += sum(s.t, metrics, "warmpath_"+name)
		}
		return n == 0
	})
}

// indexed is one worker rank of the picker's index.
type indexed struct {
	ID     uint64         `json:"id,string"`
	Rank   uint32         `json:"rank"`
	Name   string         `json:"name"`
	Role   string         `json:"role"`
	Blocks map[string]int `json:"blocks"`
	Chains []string       `json:"chains"`
}

// index returns what the picker believes its workers hold. Workers that hold
// nothing are left out.
func (s *stack) index() []indexed {
	s.t.Helper()
	var dump struct{ Workers []indexed }
	page := get(s.t, s.admin+"/debug/index?chains=true")
	if err := json.Unmarshal([]byte(page.body), &dump); err != nil {
		s.t.Fatalf("/debug/index: %v", err)
	}
	for _, w := range dump.Workers {
		if w.Blocks["device"] != len(w.Chains) {
			s.t.Errorf("index counts %d blocks of %s and lists %d", w.Blocks["device"], w.Name, len(w.Chains))
		}
	}
	return slices.DeleteFunc(dump.Workers, func(w indexed) bool { return len(w.Chains) == 0 })
}

// holds says whether the index has all blocks of a prompt for a worker, and no
// block of it.
func (s *stack) holds(name string, tokens []uint32) (all, none bool) {
	s.t.Helper()
	all, none = true, true
	held := map[string]bool{}
	for _, w := range s.index() {
		if w.Name == name {
			for _, c := range w.Chains {
				held[c] = true
			}
		}
	}
	for _, c := range chains(tokens) {
		if held[strconv.FormatUint(uint64(c), 10)] {
			none = false
		} else {
			all = false
		}
	}
	return all, none
}

// awaitHeld waits until the index has a prompt for a worker.
func (s *stack) awaitHeld(name string, tokens []uint32) {
	s.t.Helper()
	eventually(s.t, "the index has the prompt for "+name, func() bool { all, _ := s.holds(name, tokens); return all })
}

// chains are the prefix chains of a prompt's full blocks.
func chains(tokens []uint32) []block.Chain {
	hashes := block.Layout{Size: blockSize}.AppendHashes(nil, tokens, block.NewSeed("", ""))
	return block.AppendChains(nil, hashes)
}

// stats returns what a simulated worker did so far.
func (w *worker) stats(t *testing.T) simengine.Stats {
	t.Helper()
	var st simengine.Stats
	if err := json.Unmarshal([]byte(get(t, "http://"+w.addr()+"/sim/stats").body), &st); err != nil {
		t.Fatalf("statistics of %s: %v", w.name, err)
	}
	return st
}
