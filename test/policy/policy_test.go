// Package policy_test holds what the cost models are worth: a trace of requests
// runs against simulated workers in simulated time, and real pickers, each over an
// index and a load table of its own, place it. What comes out is the same every time.
package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// run simulates a trace with real pickers, whose news of each other and of caches
// are late.
func run(t *testing.T, s setting, model pick.Model, pickers int, late time.Duration) outcome {
	t.Helper()
	o := pick.DefaultOptions()
	o.Model = model
	role := fleet.Prefill
	if s.decodes {
		role = fleet.Aggregated
	}
	rs := newReplicas(t, pickers, late, o, s.trace, s.workers, role)
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
	t.Logf("%v, %d pickers, %v late: %.3f of the ceiling, time to first token p50 %.2f s, p90 %.2f s",
		model, pickers, late, out.share(), out.quantile(0.5).Seconds(), out.quantile(0.9).Seconds())
	return out
}

// median is the ratio of two medians of the time to the first token.
func median(a, b outcome) float64 { return float64(a.quantile(0.5)) / float64(b.quantile(0.5)) }

// A prefill pool, and one picker that knows all at once.
func TestCongestionOnATrace(t *testing.T) {
	s := setting{trace: conversation(t), workers: 8, load: 0.8, cache: 0.75}
	congestion, dynamo := run(t, s, pick.Congestion, 1, 0), run(t, s, pick.Dynamo, 1, 0)
	if congestion.share() < 0.9 {
		t.Errorf("%.3f of the ceiling, want 0.9", congestion.share())
	}
	if ratio := median(congestion, dynamo); ratio > 0.55 {
		t.Errorf("the median time to the first token is %.2f times that of Dynamo's model, want 0.55 at most", ratio)
	}
}

// Close to what workers can do at all, prompts wait for longer than the TTL of a guess.
// Where the guess ended before its prompt is computed, equal prompts would be spread
// over workers, which then have more to compute than they can: 0.82 of the ceiling, and
// a median of 133 s.
func TestCongestionUnderOverload(t *testing.T) {
	s := setting{trace: conversation(t), workers: 8, load: 0.95, cache: 0.75}
	congestion := run(t, s, pick.Congestion, 1, 0)
	if congestion.share() < 0.95 {
		t.Errorf("%.3f of the ceiling, want 0.95", congestion.share())
	}
	if p50 := congestion.quantile(0.5); p50 > 20*time.Second {
		t.Errorf("the median time to the first token is %v, want 20 s at most", p50)
	}
	if p90 := congestion.quantile(0.9); p90 < 2*guessTTL {
		t.Errorf("one request in ten waits for more than %v: that is no overload", p90)
	}
}

// Aggregated workers, on which decoding counts as well.
func TestCongestionOnAggregatedWorkers(t *testing.T) {
	s := setting{trace: conversation(t), workers: 8, load: 0.8, cache: 0.75, decodes: true}
	congestion, dynamo := run(t, s, pick.Congestion, 1, 0), run(t, s, pick.Dynamo, 1, 0)
	if congestion.share() < 0.87 {
		t.Errorf("%.3f of the ceiling, want 0.87", congestion.share())
	}
	if ratio := median(congestion, dynamo); ratio > 0.55 {
		t.Errorf("the median time to the first token is %.2f times that of Dynamo's model, want 0.55 at most", ratio)
	}
}

// Three pickers take turns. What the others place, and what caches hold, they learn
// late: within that time many requests come, for the trace has them in bursts.
func TestThreePickersWithLateViews(t *testing.T) {
	s := setting{trace: conversation(t), workers: 8, load: 0.8, cache: 0.75}
	fresh := run(t, s, pick.Congestion, 1, 0)
	for _, late := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
		congestion, dynamo := run(t, s, pick.Congestion, 3, late), run(t, s, pick.Dynamo, 3, late)
		if congestion.share() < 0.9 {
			t.Errorf("%v late: %.3f of the ceiling, want 0.9", late, congestion.share())
		}
		if ratio := median(congestion, dynamo); ratio > 0.25 {
			t.Errorf("%v late: the median time to the first token is %.2f times that of Dynamo's model, want 0.25 at most", late, ratio)
		}
		if ratio := median(congestion, fresh); ratio > 1.6 {
			t.Errorf("%v late: the median time to the first token is %.2f times that of one picker that knows all, want 1.6 at most", late, ratio)
		}
	}
}

// Workers of different speed, at a load at which some are idle: with views 5 s old a
// cost in seconds would send everybody to the fastest of them.
func TestFastWorkersAndLateViews(t *testing.T) {
	var congestion, dynamo, fresh float64
	for seed := range uint64(2) {
		s := setting{trace: conversation(t), workers: 8, load: 0.5, cache: 0.75, speeds: speeds(8, 0.3, seed)}
		late := run(t, s, pick.Congestion, 3, 5*time.Second)
		if late.share() < 0.85 {
			t.Errorf("%.3f of the ceiling, want 0.85", late.share())
		}
		congestion += late.quantile(0.5).Seconds()
		d, f := run(t, s, pick.Dynamo, 3, 5*time.Second), run(t, s, pick.Congestion, 1, 0)
		dynamo += d.quantile(0.5).Seconds()
		fresh += f.quantile(0.5).Seconds()
	}
	if ratio := congestion / dynamo; ratio > 0.7 {
		t.Errorf("the median time to the first token is %.2f times that of Dynamo's model, which counts blocks; want 0.7 at most", ratio)
	}
	if ratio := congestion / fresh; ratio > 1.5 {
		t.Errorf("the median time to the first token is %.2f times that of one picker that knows all, want 1.5 at most", ratio)
	}
}

// speeds are n speeds whose logarithms have the deviation sigma, and whose mean is 1.
func speeds(n int, sigma float64, seed uint64) []float64 {
	random := rand.New(rand.NewPCG(seed, 1))
	all, sum := make([]float64, n), 0.0
	for i := range all {
		all[i] = math.Exp(sigma * random.NormFloat64())
		sum += all[i]
	}
	for i := range all {
		all[i] *= float64(n) / sum
	}
	return all
}
