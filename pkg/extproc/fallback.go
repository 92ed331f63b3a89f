package extproc

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// MaxFallback bounds [Routing.Fallback].
const MaxFallback = 4

// fallback is the endpoints to try when the picked one fails, in this order.
type fallback struct {
	n         int
	endpoints [MaxFallback]netip.AddrPort
	costs     [MaxFallback]float64
}

// offer takes an endpoint in if it is among the cheapest most ones. Of several ranks
// at one endpoint the cheapest counts.
func (f *fallback) offer(e netip.AddrPort, cost float64, most int) {
	if at := slices.Index(f.endpoints[:f.n], e); at >= 0 {
		if cost >= f.costs[at] {
			return
		}
		copy(f.endpoints[at:], f.endpoints[at+1:f.n])
		copy(f.costs[at:], f.costs[at+1:f.n])
		f.n--
	}
	at := f.n
	for at > 0 && cmp.Less(cost, f.costs[at-1]) {
		at--
	}
	if at >= most {
		return
	}
	f.n = min(f.n+1, most)
	copy(f.endpoints[at+1:f.n], f.endpoints[at:])
	copy(f.costs[at+1:f.n], f.costs[at:])
	f.endpoints[at], f.costs[at] = e, cost
}

// chooseFallback finds who could take the place of the worker that decodes: workers
// of its role that are not busy and do not fail, and connect with the prefill worker.
// pool is the one that the candidates are from.
func (st *stream) chooseFallback(w *work, pool *fleet.Snapshot, most int) {
	f, d := &st.fallback, &st.decision
	f.n = 0
	side := fleet.Decode
	computes := d.Mode != pick.Disaggregated && d.Mode != pick.PromptLess
	if d.Mode == pick.OnAggregated || d.Mode == pick.SplitOff {
		side = fleet.Aggregated
	}
	prefill := d.Prefill.Site.Location()
	for i := range w.scratch.Candidates {
		t := &w.scratch.Candidates[i]
		other := &pool.Workers[t.Worker]
		if t.Side != side || t.Busy() || other.Endpoint == d.Decode.Endpoint || other.Role != d.Decode.Role ||
			slices.Contains(w.req.Avoid, other.Endpoint) {
			continue
		}
		if at := other.Site.Location(); !computes && !at.Connects(&prefill) {
			continue
		}
		cost := t.Cost
		if side == fleet.Decode && computes {
			cost = t.Local
		}
		f.offer(other.Endpoint, cost, most)
	}
}

// destination is what the gateway is told: the picked endpoint, and those to try
// after it (endpoint-picker.md 1.3).
func (st *stream) destination() string {
	picked := st.decision.Decode.Endpoint
	if st.fallback.n == 0 {
		return picked.String()
	}
	b := picked.AppendTo(make([]byte, 0, 24*(1+st.fallback.n)))
	for _, e := range st.fallback.endpoints[:st.fallback.n] {
		b = e.AppendTo(append(b, ','))
	}
	return string(b)
}
