package index_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

type benchCase struct {
	workers, holders int
	branchy          bool
}

func (c benchCase) String() string {
	s := fmt.Sprintf("workers=%d/holders=%d", c.workers, c.holders)
	if c.branchy {
		s += "/branchy"
	}
	return s
}

var benchCases = []benchCase{{8, 1, false}, {64, 1, false}, {64, 8, false}, {64, 64, false}, {64, 1, true}, {1000, 8, false}}

var workloads sync.Map

func (c benchCase) workload() *workload {
	w, ok := workloads.Load(c)
	if !ok {
		w, _ = workloads.LoadOrStore(c, newWorkload(c.workers, c.holders, c.branchy))
	}
	return w.(*workload)
}

// structure is one of the indexes that the benchmarks compare.
type structure struct {
	name  string
	limit int // workers
	fresh func() store
	match func(x store) func([]block.Chain)
}

var structures = []structure{
	{"runs", index.MaxWorkers, func() store { return index.New() }, func(x store) func([]block.Chain) {
		var m index.Match
		return func(c []block.Chain) { x.(*index.Index).Match(c, &m) }
	}},
	{"plain", index.MaxWorkers, func() store { return newPlain() }, func(x store) func([]block.Chain) {
		var m plainMatch
		return func(c []block.Chain) { x.(*plain).Match(c, &m) }
	}},
	{"flat", 64, func() store { return newFlat() }, func(x store) func([]block.Chain) {
		var m [64]uint32
		return func(c []block.Chain) { x.(*flat).Match(c, &m) }
	}},
}

func BenchmarkApply(b *testing.B) {
	for _, s := range structures {
		for _, c := range benchCases {
			if c.workers > s.limit {
				continue
			}
			for _, writers := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%v/writers=%d", s.name, c, writers), func(b *testing.B) {
					w := c.workload()
					for b.Loop() {
						b.StopTimer()
						x := s.fresh()
						runtime.GC()
						b.StartTimer()
						applyBy(x, w, writers)
					}
					b.ReportMetric(float64(b.N)*float64(w.stored)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
				})
			}
		}
	}
}

// applyBy applies a workload from several goroutines, each having its workers.
func applyBy(x store, w *workload, writers int) {
	var wg sync.WaitGroup
	for k := range writers {
		wg.Go(func() {
			for i := range w.events {
				if ev := &w.events[i]; int(ev.WorkerID)%writers == k {
					if err := x.Apply(ev); err != nil {
						panic(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func benchMatch(b *testing.B, prompts func(*workload) [][]block.Chain) {
	for _, s := range structures {
		for _, c := range benchCases {
			if c.workers > s.limit {
				continue
			}
			w := c.workload()
			x := s.fresh()
			w.fill(x)
			for _, busy := range []bool{false, true} {
				name := fmt.Sprintf("%s/%v/idle", s.name, c)
				if busy {
					name = fmt.Sprintf("%s/%v/writer", s.name, c)
				}
				b.Run(name, func(b *testing.B) {
					if busy {
						defer saturate(b, x, w)()
					}
					measure(b, s.match(x), prompts(w))
				})
			}
		}
	}
}

func BenchmarkMatch128(b *testing.B) {
	benchMatch(b, func(w *workload) [][]block.Chain { return w.short })
}

func BenchmarkMatch1000(b *testing.B) {
	benchMatch(b, func(w *workload) [][]block.Chain { return w.long })
}

// measure times every lookup by itself.
func measure(b *testing.B, match func([]block.Chain), prompts [][]block.Chain) {
	took := make([]time.Duration, 0, 1<<20)
	i := 0
	for b.Loop() {
		i++
		start := time.Now()
		match(prompts[i*7919%len(prompts)])
		if d := time.Since(start); len(took) < cap(took) {
			took = append(took, d)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
}

// churn evicts the blocks of a stored event, last first, and stores them again.
func churn(x store, ev *kvevent.Event) int {
	gone := kvevent.Event{WorkerID: ev.WorkerID, Kind: kvevent.Removed}
	for _, blk := range slices.Backward(ev.Blocks) {
		gone.Gone = append(gone.Gone, blk.Engine)
	}
	for _, e := range []*kvevent.Event{&gone, ev} {
		if err := x.Apply(e); err != nil {
			panic(err)
		}
	}
	return 2 * len(ev.Blocks)
}

// saturate writes as fast as it can, evicting the tails of prompts and storing
// them again, until the function it returns is called.
func saturate(b *testing.B, x store, w *workload) func() {
	var stop atomic.Bool
	var blocks atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	wg.Go(func() {
		for i := 0; !stop.Load(); i = (i + 1) % len(w.events) {
			blocks.Add(int64(churn(x, &w.events[i])))
		}
	})
	return func() {
		stop.Store(true)
		wg.Wait()
		b.ReportMetric(float64(blocks.Load())/time.Since(start).Seconds()/1e6, "Mwritten/s")
	}
}

// heapBytes is what is alive on the heap.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkMemory(b *testing.B) {
	for _, s := range structures {
		for _, c := range benchCases {
			if c.workers > s.limit {
				continue
			}
			b.Run(fmt.Sprintf("%s/%v", s.name, c), func(b *testing.B) {
				w := c.workload()
				for b.Loop() {
					before := heapBytes()
					x := s.fresh()
					w.fill(x)
					after := heapBytes()
					entries := float64(x.Stats().Entries)
					b.ReportMetric(entries, "entries")
					b.ReportMetric(float64(after-before)/entries, "heap-B/entry")
					if x, ok := x.(*index.Index); ok {
						b.ReportMetric(float64(x.Memory().Bytes)/entries, "counted-B/entry")
					}
					runtime.KeepAlive(x)
				}
			})
		}
	}
}

func BenchmarkDrop(b *testing.B) {
	for _, s := range structures {
		b.Run(s.name+"/workers=64", func(b *testing.B) {
			w := benchCase{64, 1, false}.workload()
			x := s.fresh()
			w.fill(x)
			took := time.Duration(0)
			i := 0
			for b.Loop() {
				b.StopTimer()
				id := i % w.workers
				i++
				b.StartTimer()
				start := time.Now()
				x.Drop(fleet.Key{ID: uint64(id)})
				took = max(took, time.Since(start))
				b.StopTimer()
				for _, e := range w.perWorker[id] {
					if err := x.Apply(&w.events[e]); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(took.Nanoseconds())/1e3, "max-us")
		})
	}
}

// BenchmarkChurn evicts and stores again, event by event, with nothing beside it.
func BenchmarkChurn(b *testing.B) {
	for _, s := range structures {
		for _, c := range benchCases {
			if c.workers > s.limit {
				continue
			}
			b.Run(fmt.Sprintf("%s/%v", s.name, c), func(b *testing.B) {
				w := c.workload()
				x := s.fresh()
				w.fill(x)
				i, blocks := 0, 0
				for b.Loop() {
					blocks += churn(x, &w.events[i])
					i = (i + 1) % len(w.events)
				}
				b.ReportMetric(float64(blocks)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
			})
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	w := benchCase{64, 1, false}.workload()
	x := index.New()
	w.fill(x)
	var buf bytes.Buffer
	write, load := time.Duration(0), time.Duration(0)
	for b.Loop() {
		buf.Reset()
		start := time.Now()
		if err := x.Snapshot(&buf); err != nil {
			b.Fatal(err)
		}
		written := time.Now()
		if err := index.New().Load(bytes.NewReader(buf.Bytes())); err != nil {
			b.Fatal(err)
		}
		write, load = write+written.Sub(start), load+time.Since(written)
	}
	b.ReportMetric(float64(write.Milliseconds())/float64(b.N), "write-ms")
	b.ReportMetric(float64(load.Milliseconds())/float64(b.N), "load-ms")
	b.ReportMetric(float64(buf.Len())/float64(x.Stats().Entries), "B/entry")
}

// BenchmarkInterleaved is the layout that suits runs least: the workers' events
// come in turns, so that no prompt's blocks are stored in a row.
func BenchmarkInterleaved(b *testing.B) {
	for _, c := range []benchCase{{64, 1, false}, {64, 8, false}, {64, 1, true}} {
		w := c.workload()
		x := index.New()
		for round := 0; round >= 0; round++ {
			done := true
			for _, events := range w.perWorker {
				if round < len(events) {
					done = false
					if err := x.Apply(&w.events[events[round]]); err != nil {
						b.Fatal(err)
					}
				}
			}
			if done {
				break
			}
		}
		bytes := float64(x.Memory().Bytes) / float64(x.Stats().Entries)
		for name, prompts := range map[string][][]block.Chain{"128": w.short, "1000": w.long} {
			b.Run(fmt.Sprintf("runs/%v/blocks=%s", c, name), func(b *testing.B) {
				var m index.Match
				measure(b, func(chains []block.Chain) { x.Match(chains, &m) }, prompts)
				b.ReportMetric(bytes, "counted-B/entry")
			})
		}
	}
}
