package index_test

import (
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// BenchmarkMatchBesideDrops times lookups while a worker with 16,000 blocks of a
// million is dropped and fills again, over and over, and for comparison while the
// same events come without drops: the events then only say what is known.
func BenchmarkMatchBesideDrops(b *testing.B) {
	w := benchCase{64, 1, false}.workload()
	for _, drops := range []bool{false, true} {
		b.Run(fmt.Sprintf("drops=%v", drops), func(b *testing.B) {
			x := index.New()
			w.fill(x)
			var stop atomic.Bool
			var wg sync.WaitGroup
			dropped, took := 0, time.Duration(0)
			start := time.Now()
			wg.Go(func() {
				for id := 0; !stop.Load(); id = (id + 1) % w.workers {
					if drops {
						at := time.Now()
						x.Drop(key(uint64(id)))
						took = max(took, time.Since(at))
						dropped++
					}
					for _, e := range w.perWorker[id] {
						if err := x.Apply(&w.events[e]); err != nil {
							b.Error(err)
						}
					}
				}
			})
			var m index.Match
			measure(b, func(chains []block.Chain) { x.Match(chains, &m) }, w.short)
			elapsed := time.Since(start)
			stop.Store(true)
			wg.Wait()
			b.ReportMetric(float64(dropped)/elapsed.Seconds(), "drops/s")
			b.ReportMetric(float64(took.Nanoseconds())/1e3, "drop-max-us")
		})
	}
}

// BenchmarkReadsBesideBacklog counts the lookups that one reader gets answered in
// half a second while two writers never run out of events.
func BenchmarkReadsBesideBacklog(b *testing.B) {
	const window = 500 * time.Millisecond
	for _, c := range []benchCase{{64, 1, false}, {64, 8, false}, {1000, 8, false}} {
		b.Run(c.String(), func(b *testing.B) {
			w := c.workload()
			x := index.New()
			w.fill(x)
			var stop atomic.Bool
			var written atomic.Int64
			var wg sync.WaitGroup
			for k := range 2 {
				wg.Go(func() {
					for i := 0; !stop.Load(); i = (i + 1) % len(w.events) {
						if ev := &w.events[i]; int(ev.WorkerID)%2 == k {
							written.Add(int64(churn(x, ev)))
						}
					}
				})
			}
			var m index.Match
			answered, longest := 0, time.Duration(0)
			start := time.Now()
			for b.Loop() {
				for end := time.Now().Add(window); ; answered++ {
					before := time.Now()
					if before.After(end) {
						break
					}
					x.Match(w.short[answered*7919%len(w.short)], &m)
					longest = max(longest, time.Since(before))
				}
			}
			elapsed := time.Since(start).Seconds()
			stop.Store(true)
			wg.Wait()
			b.ReportMetric(float64(answered)/float64(b.N), "lookups/0.5s")
			b.ReportMetric(float64(written.Load())/elapsed/1e6, "Mwritten/s")
			b.ReportMetric(float64(longest.Nanoseconds())/1e3, "longest-us")
		})
	}
}

// BenchmarkBound stores a workload over and over, under new engine hashes, in an
// index that has room for a part of it, beside lookups.
func BenchmarkBound(b *testing.B) {
	w := benchCase{64, 1, false}.workload()
	for _, bytes := range []int64{8 << 20, 16 << 20, index.DefaultBytes} {
		b.Run(fmt.Sprintf("MB=%d", bytes>>20), func(b *testing.B) {
			x, err := index.NewBounded(index.Config{MaxBytes: bytes})
			if err != nil {
				b.Fatal(err)
			}
			w.fill(x)
			var stop atomic.Bool
			var written atomic.Int64
			var wg sync.WaitGroup
			start := time.Now()
			wg.Go(func() {
				for i := 0; !stop.Load(); i = (i + 1) % len(w.events) {
					if err := x.Apply(&w.events[i]); err != nil {
						b.Error(err)
					}
					written.Add(int64(len(w.events[i].Blocks)))
				}
			})
			var m index.Match
			measure(b, func(chains []block.Chain) { x.Match(chains, &m) }, w.short)
			elapsed := time.Since(start).Seconds()
			stop.Store(true)
			wg.Wait()
			b.ReportMetric(float64(written.Load())/elapsed/1e6, "Mwritten/s")
			b.ReportMetric(float64(x.Stats().Entries), "entries")
			b.ReportMetric(float64(x.Memory().Evicted), "evicted")
			b.ReportMetric(float64(x.Memory().Bytes)/float64(bytes), "of-bound")
		})
	}
}

// BenchmarkCollect runs the garbage collector over 10 M entries of 1,000 workers,
// and for comparison over none: the difference is what the index adds. It reports
// how long the world stood still, and how long a whole cycle takes.
func BenchmarkCollect(b *testing.B) {
	workloads.Clear()
	b.Run("none", collect)
	x := index.New()
	fillTenfold(b, x)
	b.Run("index", func(b *testing.B) {
		collect(b)
		b.ReportMetric(float64(x.Stats().Entries), "entries")
		b.ReportMetric(float64(x.Stats().Workers), "workers")
		b.ReportMetric(float64(x.Memory().Bytes)/float64(x.Stats().Entries), "counted-B/entry")
	})
	runtime.KeepAlive(x)
}

// fillTenfold stores a workload ten times, with prompts and engine hashes of
// their own.
func fillTenfold(b *testing.B, x *index.Index) {
	w := newWorkload(1000, 1, false)
	for k := range uint64(10) {
		for i := range w.events {
			ev := w.events[i]
			ev.Blocks = slices.Clone(ev.Blocks)
			for j := range ev.Blocks {
				ev.Blocks[j].Engine += kvevent.EngineHash(k)
				if j == 0 && !ev.HasParent {
					ev.Blocks[j].Hash += block.Hash(k)
				}
			}
			if ev.HasParent {
				ev.Parent += kvevent.EngineHash(k)
			}
			if err := x.Apply(&ev); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// collect runs the garbage collector and reports the longest of its pauses.
func collect(b *testing.B) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	slow := pausesOver(time.Millisecond)
	for b.Loop() {
		runtime.GC()
	}
	slow = pausesOver(time.Millisecond) - slow
	runtime.ReadMemStats(&after)
	var pauses []uint64
	for i := before.NumGC; i < after.NumGC && i < before.NumGC+256; i++ {
		pauses = append(pauses, after.PauseNs[(i+255)%256])
	}
	slices.Sort(pauses)
	b.ReportMetric(float64(pauses[len(pauses)/2])/1e3, "cycle-stopped-p50-us")
	b.ReportMetric(float64(pauses[len(pauses)-1])/1e3, "cycle-stopped-max-us")
	b.ReportMetric(float64(slow), "pauses>1ms")
}

// pausesOver returns how many pauses of the collector so far took longer, as far
// as the runtime's buckets tell.
func pausesOver(d time.Duration) uint64 {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	h, n := s[0].Value.Float64Histogram(), uint64(0)
	for i, count := range h.Counts {
		if h.Buckets[i] >= d.Seconds() && !math.IsInf(h.Buckets[i], -1) {
			n += count
		}
	}
	return n
}
