package chaos

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
)

// planeName is the plane's connection as the server lists it.
const planeName = "picker"

// picker is the part under test: an event plane and its index.
type picker struct {
	t     *testing.T
	plane *eventplane.Plane
	index *index.Index
	log   lockedBuffer

	recovers bool // it can ask the workers
	streams  bool // it reads a stream

	slow atomic.Bool // every event takes a while

	mu    sync.Mutex
	known map[fleet.Key][]time.Time // when each gap of a rank was first seen in the counters
	sight map[fleet.Key][]sight     // likewise how far it has come, of the current step
}

// sight is when a rank was first seen to have come so far.
type sight struct {
	moment
	at time.Time
}

// startPicker runs a plane until the test ends, and returns once it listens.
func startPicker(t *testing.T, url string, c *crew, o serverOptions) *picker {
	t.Helper()
	p := &picker{t: t, index: index.New(), known: map[fleet.Key][]time.Time{}, sight: map[fleet.Key][]sight{}, recovers: o.recovers, streams: o.streams}
	cfg := eventplane.Config{
		URL: url, Namespace: namespace, Name: planeName, Index: p.index,
		Known: p.take, Lost: func(fleet.Key) {}, Drop: func(k fleet.Key) { t.Errorf("worker %v is given up", k) },
		Log: slog.New(slog.NewTextHandler(&p.log, nil)),
	}
	if o.recovers {
		cfg.Recover = c
	}
	if o.streams {
		cfg.JetStream = &eventplane.JetStream{Stream: "events"}
	}
	var err error
	p.plane, err = eventplane.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.plane.Run(ctx); err != nil {
			t.Errorf("the plane ends: %v", err)
		}
	})
	running.Go(func() { p.watch(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if t.Failed() {
			t.Logf("log of the plane:\n%s", p.log.String())
		}
	})
	eventually(t, "the plane listens", func() bool { return p.plane.Stats().EverListened })
	return p
}

// take is asked about every event.
func (p *picker) take(fleet.Key) bool {
	if p.slow.Load() {
		time.Sleep(10 * time.Millisecond) // the fault itself
	}
	return true
}

// watch notes when events have been taken in, and when gaps come to be known.
func (p *picker) watch(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		workers, now := p.plane.Workers(), time.Now()
		p.mu.Lock()
		for k, s := range workers {
			for uint64(len(p.known[k])) < s.Gaps {
				p.known[k] = append(p.known[k], now)
			}
			seen, is := p.sight[k], moment{s.Restarts, s.LastID}
			if n := len(seen); n == 0 || seen[n-1].moment != is {
				p.sight[k] = append(seen, sight{is, now})
			}
		}
		p.mu.Unlock()
	}
}

// knownAt returns when the n-th gap of a rank, from 0, came to be known.
func (p *picker) knownAt(k fleet.Key, n int) time.Time {
	p.t.Helper()
	var at time.Time
	eventually(p.t, "a gap is noted", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n >= len(p.known[k]) {
			return false
		}
		at = p.known[k][n]
		return true
	})
	return at
}

// takenAt returns when an event of a rank had been taken in.
func (p *picker) takenAt(k fleet.Key, m moment) time.Time {
	p.t.Helper()
	var at time.Time
	eventually(p.t, "an event is noted", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.IndexFunc(p.sight[k], func(s sight) bool { return s.reaches(m) })
		if i >= 0 {
			at = p.sight[k][i].at
		}
		return i >= 0
	})
	return at
}

// forget drops what was seen of a rank but for the newest.
func (p *picker) forget(k fleet.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sight[k] = slices.Clone(p.sight[k][max(0, len(p.sight[k])-1):])
}

// accounts returns the counters of all ranks.
func (p *picker) accounts() map[fleet.Key]account { return accountsOf(p.plane.Workers()) }

func accountsOf(workers map[fleet.Key]eventplane.WorkerStats) map[fleet.Key]account {
	all := map[fleet.Key]account{}
	for k, s := range workers {
		all[k] = account{
			Last: s.LastID, Events: s.Events, Missed: s.Missed, Gaps: s.Gaps, Restarts: s.Restarts,
			Skipped: s.Duplicates + s.Stale + s.Strays + s.Refused + s.Ignored,
		}
	}
	return all
}

// lockedBuffer is a buffer that may be read while it is written to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
