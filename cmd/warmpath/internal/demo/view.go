package demo

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// headEvery is how many lines share one table head.
const headEvery = 20

// show writes one line a second until ctx ends.
func show(ctx context.Context, w io.Writer, t *traffic, s *stack) {
	start, events := time.Now(), uint64(0)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if n%headEvery == 0 {
				fmt.Fprintln(w, "  time  req/s  errors  hit rate  ceiling  events/s  where each tenant's prompts were computed")
			}
			total := s.events()
			fmt.Fprintln(w, line(now.Sub(start), t.since(now.Add(-time.Second)), total-events))
			events = total
		}
	}
}

// line is what the last second looked like.
func line(at time.Duration, list []served, events uint64) string {
	errs := 0
	by := map[int]map[string]int{}
	for _, s := range list {
		if s.err != "" {
			errs++
			continue
		}
		add(by, s)
	}
	hit, ceiling := rates(list)
	var b strings.Builder
	fmt.Fprintf(&b, "%5.0fs %6d %7d %8.1f%% %7.1f%% %9d  ", at.Seconds(), len(list), errs, 100*hit, 100*ceiling, events)
	for _, tenant := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(&b, "%c: %s  ", 'A'+tenant, shares(by[tenant]))
	}
	return strings.TrimRight(b.String(), " ")
}

// shares lists workers by their part of a tenant's requests, largest first.
func shares(by map[string]int) string {
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		if by[a] != by[b] {
			return by[b] - by[a]
		}
		return strings.Compare(a, b)
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %d", name, by[name])
	}
	return strings.Join(parts, ", ")
}

// summary is the end of the demo for people.
func summary(w io.Writer, r *Result) error {
	if r.Requests == 0 {
		_, err := fmt.Fprintf(w, "\nThe demo sent no requests of its own. The picker received %d KV events. %d requests came to a decode worker with the name of a prefill worker.\n",
			r.Events, r.PrefillHeaderSeen)
		return err
	}
	_, err := fmt.Fprintf(w, `
%d requests, %d errors. %.1f%% of all prompt tokens were found in a cache (%.1f%% in the last 10 s); an infinite cache would have found %.1f%%.
The picker received %d KV events. %d requests came to a decode worker with the name of a prefill worker.
In the last 10 s one worker computed %.0f%% of a tenant's prompts, on average over the tenants.
Requests that each worker had a part in:
`, r.Requests, r.Errors, 100*r.HitRate, 100*r.HitRateLast10s, 100*r.Ceiling, r.Events, r.PrefillHeaderSeen, 100*r.TopWorkerShare)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.DecisionsByWorker)) {
		if _, err := fmt.Fprintf(w, "  %-10s %6d\n", name, r.DecisionsByWorker[name]); err != nil {
			return err
		}
	}
	for at, text := range r.ErrorSamples {
		if _, err := fmt.Fprintf(w, "  error at %s: %s\n", at, text); err != nil {
			return err
		}
	}
	return nil
}
