package policy_test

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// run simulates a trace with real pickers.
func run(t *testing.T, s setting, model pick.Model, role fleet.Role, pickers int, late time.Duration) outcome {
	t.Helper()
	o := pick.DefaultOptions()
	o.Model = model
	rs := newReplicas(t, pickers, late, o, s.trace, s.workers, role)
	s.decodes = role == fleet.Aggregated
	out := simulate(s, rs.clock, rs)
	if rs.err != nil {
		t.Fatal(rs.err)
	}
	if left := rs.left(); len(left) > 0 {
		t.Errorf("still booked at the end: %+v", left)
	}
	if got, want := len(out.ttft), len(s.trace.requests); got != want {
		t.Errorf("%d requests ended, want %d", got, want)
	}
	t.Logf("%v on %v workers, %d pickers, %v late: %.3f of the ceiling, time to first token p50 %.2f s, p90 %.2f s",
		model, role, pickers, late, out.share(), out.quantile(0.5).Seconds(), out.quantile(0.9).Seconds())
	return out
}

func TestCongestionOnATrace(t *testing.T) {
	s := setting{trace: conversation(t), workers: 8, load: 0.8, cache: 0.75}
	congestion := run(t, s, pick.Congestion, fleet.Prefill, 1, 0)
	dynamo := run(t, s, pick.Dynamo, fleet.Prefill, 1, 0)
	if congestion.share() < 0.9 {
		t.Errorf("%.3f of the ceiling, want 0.9", congestion.share())
	}
	if ratio := float64(congestion.quantile(0.5)) / float64(dynamo.quantile(0.5)); ratio > 0.55 {
		t.Errorf("the median time to the first token is %.2f times that of Dynamo's model, want 0.55 at most", ratio)
	}
}
