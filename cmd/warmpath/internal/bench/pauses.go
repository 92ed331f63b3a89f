package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/index"
)

// pausesTime is how long garbage is collected again and again once all is built.
const pausesTime = time.Second

// pauses is how long collections stopped a process: of each, all its stops.
type pauses struct {
	P99US float64 `json:"p99_us"`
	MaxUS float64 `json:"max_us"`
}

// pauses collects garbage without a rest while a second index of the same size is
// built, written and read, and compares the pauses with those of a process that
// has no index and keeps the cores as busy.
func (f *filling) pauses(ctx context.Context) ([]CaseRow, error) {
	asked, err := f.questions(false, f.workers)
	if err != nil {
		return nil, err
	}
	mine, err := pausesDuring(func() error {
		x := index.New()
		if _, err := applyAll(x, f.load); err != nil {
			return err
		}
		var stop atomic.Bool
		writing := make(chan error, 1)
		go func() { writing <- churn(x, &stop) }()
		var m index.Match
		var wrong error
		for start, i := time.Now(), 0; time.Since(start) < pausesTime && wrong == nil; i++ {
			// The first index: the second may give other slots to the workers.
			_, wrong = ask(f.index, &asked[i*7919%len(asked)], &m)
		}
		stop.Store(true)
		return errors.Join(wrong, <-writing)
	})
	if err != nil {
		return nil, err
	}
	base, err := baselinePauses(ctx)
	if err != nil {
		return nil, err
	}
	r := f.row("gc-pause")
	r.P99US, r.MaxUS, r.BaselineP99US, r.BaselineMaxUS = mine.P99US, mine.MaxUS, base.P99US, base.MaxUS
	return []CaseRow{r}, nil
}

// pausesDuring collects garbage again and again while work runs.
func pausesDuring(work func() error) (pauses, error) {
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	seen := stats.NumGC
	var all latencies
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		runtime.GC()
		debug.ReadGCStats(&stats) // the newest pause comes first
		all = append(all, stats.Pause[:min(int(stats.NumGC-seen), len(stats.Pause))]...)
		seen = stats.NumGC
		select {
		case err := <-done:
			var r CaseRow
			all.into(&r)
			return pauses{r.P99US, us(slices.Max(all))}, err
		default:
		}
	}
}

// baselinePauses measures them in a process of its own, without an index.
func baselinePauses(ctx context.Context) (pauses, error) {
	self, err := executable()
	if err != nil {
		return pauses{}, err
	}
	var p pauses
	out, err := exec.CommandContext(ctx, self, "bench", "baseline-pauses").Output()
	if err == nil {
		err = json.Unmarshal(out, &p)
	}
	if err != nil {
		return pauses{}, fmt.Errorf("pauses of a process without an index: %w", err)
	}
	return p, nil
}

// BaselinePauses keeps every core busy without an index, collects garbage
// meanwhile, and writes the pauses as JSON.
func BaselinePauses(out io.Writer) error {
	p, err := pausesDuring(func() error {
		var busy sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			busy.Go(func() {
				hashes, chains := make([]block.Hash, longBlocks), []block.Chain(nil)
				for start := time.Now(); time.Since(start) < 2*pausesTime; {
					chains = block.AppendChains(chains[:0], hashes)
				}
			})
		}
		busy.Wait()
		return nil
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(p)
}
