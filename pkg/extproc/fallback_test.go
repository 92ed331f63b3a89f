package extproc

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// TestFallbackOrder: the cheapest are kept, in order, as sorting all would.
func TestFallbackOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, MaxFallback).Draw(t, "most")
		var f fallback
		best := map[netip.AddrPort]float64{}
		for range rapid.IntRange(0, 12).Draw(t, "offers") {
			e := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(rapid.IntRange(1, 9).Draw(t, "port")))
			// Costs differ, so that there is one order only.
			cost := float64(rapid.IntRange(0, 99).Draw(t, "cost")) + float64(e.Port())/10
			f.offer(e, cost, most)
			if old, ok := best[e]; !ok || cost < old {
				best[e] = cost
			}
		}
		var want []netip.AddrPort
		for e := range best {
			want = append(want, e)
		}
		slices.SortFunc(want, func(a, b netip.AddrPort) int { return int(10*best[a]) - int(10*best[b]) })
		want = want[:min(len(want), most)]
		if got := f.endpoints[:f.n]; !slices.Equal(got, want) {
			t.Fatalf("%v, want %v of %v", got, want, best)
		}
	})
}

// TestFallback: who is named after the picked worker.
func TestFallback(t *testing.T) {
	connector := func(w fleet.Worker, name string) fleet.Worker {
		w.Site = fleet.SiteOf(fleet.Location{Connector: name})
		return w
	}
	twoRanks := worker(33, fleet.Aggregated, "10.0.3.2:8000")
	twoRanks.Rank = 1
	split := []fleet.Worker{
		worker(11, fleet.Prefill, "10.0.1.1:8000"), worker(12, fleet.Prefill, "10.0.1.2:8000"),
		worker(21, fleet.Decode, "10.0.2.1:8000"), worker(22, fleet.Decode, "10.0.2.2:8000"), worker(23, fleet.Decode, "10.0.2.3:8000"),
	}
	for name, tc := range map[string]struct {
		workers []fleet.Worker
		most    int
		loads   map[uint64]int // blocks in use
		busy    int            // bound of them
		subset  string
		fails   string
		want    string
	}{
		"off":                    {workers: aggregates(3), loads: map[uint64]int{32: 9, 33: 5}, want: "10.0.3.1:8000"},
		"one":                    {workers: aggregates(3), most: 1, loads: map[uint64]int{32: 9, 33: 5}, want: "10.0.3.1:8000,10.0.3.3:8000"},
		"all there are, by cost": {workers: aggregates(3), most: 4, loads: map[uint64]int{32: 9, 33: 5}, want: "10.0.3.1:8000,10.0.3.3:8000,10.0.3.2:8000"},
		"within the subset": {
			workers: aggregates(3), most: 4, loads: map[uint64]int{32: 9, 33: 5}, subset: "10.0.3.1:8000,10.0.3.2:8000",
			want: "10.0.3.1:8000,10.0.3.2:8000",
		},
		"none that fails":    {workers: aggregates(3), most: 4, loads: map[uint64]int{32: 9, 33: 5}, fails: "10.0.3.3:8000", want: "10.0.3.1:8000,10.0.3.2:8000"},
		"none that is busy":  {workers: aggregates(3), most: 4, loads: map[uint64]int{32: 9, 33: 5}, busy: 8, want: "10.0.3.1:8000,10.0.3.3:8000"},
		"each endpoint once": {workers: append(aggregates(2), twoRanks), most: 4, loads: map[uint64]int{32: 9, 33: 9}, want: "10.0.3.1:8000,10.0.3.2:8000"},
		"decode workers of a pair": {
			workers: split, most: 4, loads: map[uint64]int{11: 1, 22: 9, 23: 5},
			want: "10.0.2.1:8000,10.0.2.3:8000,10.0.2.2:8000",
		},
		"decode workers that connect": {
			workers: []fleet.Worker{
				connector(split[0], "nixl"), connector(split[2], "nixl"), connector(split[3], "mooncake"), split[4],
			},
			most: 4, loads: map[uint64]int{22: 9, 23: 5}, want: "10.0.2.1:8000,10.0.2.3:8000",
		},
		"decode workers alone": {workers: split[2:], most: 4, loads: map[uint64]int{22: 9, 23: 5}, want: "10.0.2.1:8000,10.0.2.3:8000,10.0.2.2:8000"},
	} {
		t.Run(name, func(t *testing.T) {
			l := startRig(t, tc.workers, func(c *Config) { c.Fallback = tc.most })
			o := pick.DefaultOptions()
			o.MaxDecodeBlocks = tc.busy
			l.picker.SetOptions(o)
			for i := range tc.workers {
				k := tc.workers[i].Key
				w := l.load.Worker(k)
				l.load.Lock()
				l.load.Reserve(load.Booking{Blocks: tc.loads[k.ID], PrefillTokens: tc.loads[k.ID], PrefillKey: k, Prefill: w, DecodeKey: k, Decode: w})
				l.load.Unlock()
			}
			if tc.fails != "" {
				for range 2 {
					l.server.failures.fail(outcome{endpoint: party{at: netip.MustParseAddrPort(tc.fails)}, severity: unserved}, l.server.cfg.Now())
				}
			}
			m := headersMsg("POST", completions, false)
			if tc.subset != "" {
				withSubset(m, structpb.NewStringValue(tc.subset))
			}
			if got := destination(t, l.open(t).routed(m, prompt16)); got != tc.want {
				t.Errorf("destination %s, want %s", got, tc.want)
			}
			get := destination(t, func() *response {
				e := l.open(t)
				e.send(duplexModes.first(headersMsg("GET", otherPath, true)))
				return e.next()
			}())
			if n := strings.Count(get, ","); n > tc.most || tc.most > 0 && n == 0 {
				t.Errorf("without a prompt: destination %s", get)
			}
		})
	}
	for _, n := range []int{-1, MaxFallback + 1} {
		if err := (&Routing{Picker: &pick.Picker{}, Layout: block.Layout{Size: blockSize}, Fallback: n}).Validate(); err == nil {
			t.Errorf("%d fallback endpoints are accepted", n)
		} else if !strings.Contains(fmt.Sprint(err), fmt.Sprint(n)) {
			t.Errorf("the error does not say which: %v", err)
		}
	}
}
