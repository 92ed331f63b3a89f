package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// labelsOf returns the labels of a worker rank's metrics, as sum takes them.
func labelsOf(key fleet.Key) []string {
	return []string{fmt.Sprintf(`worker_id="%d"`, key.ID), fmt.Sprintf(`rank="%d"`, key.Rank)}
}

// sum adds up the samples of a metric, over those that have every one of the
// labels.
func (p *Picker) sum(ctx context.Context, name string, wanted ...string) (float64, error) {
	samples, err := p.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	total, found := 0.0, false
sample:
	for sample, value := range samples {
		labels, ok := strings.CutPrefix(sample, name+"{")
		if !ok {
			continue
		}
		for _, one := range wanted {
			if !strings.Contains(labels, one) {
				continue sample
			}
		}
		total, found = total+value, true
	}
	if !found {
		return 0, fmt.Errorf("the picker has no metric %s with %q", name, wanted)
	}
	return total, nil
}

// waitSum waits until the samples of a metric add up as wanted.
func (p *Picker) waitSum(t *testing.T, want float64, name string, wanted ...string) {
	t.Helper()
	p.waitSample(t, func(got float64) error {
		if got != want {
			return fmt.Errorf("%s with %q is %v, want %v", name, wanted, got, want)
		}
		return nil
	}, name, wanted...)
}

// waitSample waits until there are samples of a metric and their sum passes a check.
func (p *Picker) waitSample(t *testing.T, check func(float64) error, name string, wanted ...string) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		got, err := p.sum(ctx, name, wanted...)
		if err == nil {
			err = check(got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// waitIdle waits until nothing is booked on any worker: a request's load goes when
// its stream ends, which the client may see first.
func (p *Picker) waitIdle(t *testing.T) {
	t.Helper()
	for _, name := range []string{"warmpath_worker_requests", "warmpath_worker_prefill_tokens", "warmpath_worker_decode_blocks"} {
		p.waitSum(t, 0, name)
	}
}

// oddities are the counters that stay zero as long as workers behave and nothing
// is lost.
var oddities = []string{
	"warmpath_event_messages_odd_total", "warmpath_load_messages_odd_total{kind=\"bad\"}",
	"warmpath_load_messages_odd_total{kind=\"wrong_subject\"}", "warmpath_load_messages_odd_total{kind=\"unknown_field\"}",
	"warmpath_load_messages_odd_total{kind=\"dropped\"}", "warmpath_load_messages_odd_total{kind=\"other_namespace\"}",
	"warmpath_worker_event_gaps_total", "warmpath_worker_events_missed_total", "warmpath_worker_restarts_total",
	"warmpath_worker_events_unused_total", "warmpath_worker_events_stray_total",
	"warmpath_index_blocks_total{kind=\"unknown_parent\"}", "warmpath_index_blocks_total{kind=\"unknown_removal\"}",
	"warmpath_event_plane_disconnects_total",
}

// checkNothingOdd checks that the picker has counted nothing odd, apart from what
// is expected.
func (p *Picker) checkNothingOdd(t *testing.T, expected ...string) {
	t.Helper()
	samples, err := p.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range oddities {
		seen := false
		for name, value := range samples {
			if strings.HasPrefix(name, prefix) {
				seen = true
				if value != 0 && !slices.Contains(expected, prefix) {
					t.Errorf("%s is %v", name, value)
				}
			}
		}
		if !seen {
			t.Errorf("the picker has no metric %s", prefix)
		}
	}
}
