package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// IndexConfig says how Index measures.
type IndexConfig struct {
	Rounds   int    // the median counts
	Large    bool   // also 1,000 workers and 10 million entries
	Trace    string // file with the Mooncake conversation trace; empty leaves the replay out
	Shrink   int    // divides the workload, for a quick look; 1 is all of it
	Output   Output
	Out      io.Writer
	Progress io.Writer
}

// cell is one filling of the index.
type cell struct {
	workers, holders int
	branchy, large   bool
}

var cells = []cell{
	{workers: 8, holders: 1},
	{workers: 64, holders: 1},
	{workers: 64, holders: 8},
	{workers: 64, holders: 64},
	{workers: 64, holders: 1, branchy: true},
	{workers: 1000, holders: 1, large: true},
}

// Index measures the prefix index in this process: events applied by all cores,
// lookups idle and beside writers, memory, dropping workers, snapshots, pauses of
// the garbage collector, the replay of a trace, hashing.
func Index(ctx context.Context, cfg IndexConfig) error {
	var trace [][]uint64
	if cfg.Trace != "" { // a bad one shows at once, not after all the rest
		var err error
		if trace, err = readTrace(cfg.Trace); err != nil {
			return err
		}
		trace = trace[:max(1, len(trace)/cfg.Shrink)]
	}
	rows := []CaseRow{}
	for _, c := range cells {
		if c.large && !cfg.Large {
			continue
		}
		fmt.Fprintf(cfg.Progress, "%d workers, %d holders, branchy %v …\n", c.workers, c.holders, c.branchy)
		p := c.prompts(cfg.Shrink)
		load := p.place(c.workers, c.holders)
		more, err := rounds(ctx, cfg.Rounds, func() ([]CaseRow, error) { return measureIndex(ctx, cfg, c, p, load) })
		if err != nil {
			return fmt.Errorf("%d workers, %d holders: %w", c.workers, c.holders, err)
		}
		rows = append(rows, more...)
	}
	if cfg.Trace == "" {
		fmt.Fprintln(cfg.Progress, "no --trace: the replay of a trace is left out")
	} else {
		more, err := replayRows(ctx, cfg, trace)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	rows = append(rows, hashRows()...)
	return writeRows(cfg.Out, cfg.Output, indexColumns, rows)
}

// rounds measures some cases again and again and returns the medians.
func rounds(ctx context.Context, n int, measure func() ([]CaseRow, error)) ([]CaseRow, error) {
	var all [][]CaseRow
	for range n {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		rows, err := measure()
		if err != nil {
			return nil, err
		}
		all = append(all, rows)
	}
	return medians(all), nil
}

// prompts makes the prompts of a cell: fewer by the number of workers that hold
// each, so that the entries in the index stay the same; ten times as many in the
// large one.
func (c cell) prompts(shrink int) *prompts {
	short, long := shortPrompts, longPrompts
	if c.large {
		short, long = 10*short, 10*long
	}
	return newPrompts(uint64(c.holders), max(systems, short/c.holders/shrink), max(1, long/c.holders/shrink), c.branchy)
}

// filling is an index under measurement, and what was put into it.
type filling struct {
	cell
	prompts *prompts
	load    *eventLoad
	index   *index.Index
	entries int
	times   int // lookups per case
}

func (f *filling) row(name string) CaseRow {
	if f.branchy {
		name += "-branchy"
	}
	return CaseRow{Name: name, Workers: f.workers, Holders: f.holders, Entries: f.entries, Cores: runtime.GOMAXPROCS(0)}
}

// measureIndex measures all cases of one cell once.
func measureIndex(ctx context.Context, cfg IndexConfig, c cell, p *prompts, load *eventLoad) ([]CaseRow, error) {
	before := heap()
	f := &filling{cell: c, prompts: p, load: load, index: index.New(), times: max(1000, lookupsPerCase/cfg.Shrink)}
	cpu := cpuTime()
	took, err := applyAll(f.index, load)
	if err != nil {
		return nil, err
	}
	cpu = cpuTime() - cpu
	bytes := heap() - before
	f.entries = f.index.Stats().Entries
	apply, memory := f.row("apply"), f.row("memory")
	apply.speed(load.blocks, took, cpu)
	memory.BytesPerEntry = float64(bytes) / float64(f.entries)
	rows := []CaseRow{apply, memory}
	steps := []func() ([]CaseRow, error){f.fromWire, f.fromVLLM, f.lookups, f.backlog, f.snapshot, f.drops}
	if c.large {
		// Encoded messages of this size would take a gigabyte: no apply from bytes.
		steps = []func() ([]CaseRow, error){f.lookups, f.backlog, func() ([]CaseRow, error) { return f.pauses(ctx) }, f.drops}
	}
	for _, step := range steps {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		more, err := step()
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// heap returns the live heap, bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// onAllCores calls f for every worker, with one goroutine per core; a worker stays
// on one. It returns how long all took.
func onAllCores(workers int, f func(core, worker int) error) (time.Duration, error) {
	var wg sync.WaitGroup
	cores := runtime.GOMAXPROCS(0)
	errs := make([]error, cores)
	start := time.Now()
	for core := range cores {
		wg.Go(func() {
			for w := core; w < workers && errs[core] == nil; w += cores {
				errs[core] = f(core, w)
			}
		})
	}
	wg.Wait()
	return time.Since(start), errors.Join(errs...)
}

// applyAll applies a load.
func applyAll(x *index.Index, load *eventLoad) (time.Duration, error) {
	return onAllCores(len(load.byWorker), func(_, w int) error { return applyEvents(x, load.byWorker[w]) })
}

func applyEvents(x *index.Index, events []kvevent.Event) error {
	for i := range events {
		if err := x.Apply(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// cpuTime is the CPU time this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// eventsPerMessage is how many stored events of 16 blocks go into one message, as
// in the measurement of peers.
const eventsPerMessage = 4

// fromWire decodes Dynamo's messages and applies their events to an empty index,
// all of it inside the time.
func (f *filling) fromWire() ([]CaseRow, error) {
	messages := make([][][]byte, f.workers)
	for w, events := range f.load.byWorker {
		for batch := range slices.Chunk(events, eventsPerMessage) {
			env := dynamo.Envelope{PublisherID: uint64(w) + 1<<20, Sequence: uint64(len(messages[w])), Topic: dynamo.TopicKVEvents}
			msg, err := dynamo.AppendMessage(nil, dynamo.Gen14, env, batch)
			if err != nil {
				return nil, err
			}
			messages[w] = append(messages[w], msg)
		}
	}
	decoders := make([]dynamo.Decoder, runtime.GOMAXPROCS(0))
	r, err := f.fromBytes("apply-wire", messages, func(x *index.Index, core, _ int, msg []byte) error {
		var failed error
		_, err := decoders[core].Decode(msg, dynamo.EndpointScope, func(ev *kvevent.Event) {
			if err := x.Apply(ev); err != nil {
				failed = err
			}
		})
		return errors.Join(err, failed)
	})
	return []CaseRow{r}, err
}

// fromBytes takes messages, by worker, into an empty index, and makes sure that
// every block arrived.
func (f *filling) fromBytes(name string, messages [][][]byte, take func(x *index.Index, core, worker int, msg []byte) error) (CaseRow, error) {
	x := index.New()
	runtime.GC() // what encoding left behind is not part of the case
	cpu := cpuTime()
	took, err := onAllCores(len(messages), func(core, w int) error {
		for _, msg := range messages[w] {
			if err := take(x, core, w, msg); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return CaseRow{}, fmt.Errorf("%s: %w", name, err)
	}
	if got := x.Stats().Stored; got != uint64(f.load.blocks) {
		return CaseRow{}, fmt.Errorf("%s: %d of %d blocks arrived in the index", name, got, f.load.blocks)
	}
	r := f.row(name)
	r.speed(f.load.blocks, took, cpuTime()-cpu)
	return r, nil
}

// snapshot writes all that the index holds to memory and loads it into another.
func (f *filling) snapshot() ([]CaseRow, error) {
	var stream bytes.Buffer
	runtime.GC()
	start, cpu := time.Now(), cpuTime()
	if err := f.index.Snapshot(&stream); err != nil {
		return nil, err
	}
	size := stream.Len()
	loaded := index.New()
	if err := loaded.Load(&stream); err != nil {
		return nil, err
	}
	r := f.row("snapshot")
	r.P50US = us(time.Since(start))
	r.P99US = r.P50US
	r.CPUUSPerBlock = us(cpuTime()-cpu) / float64(f.entries)
	r.BytesPerEntry = float64(size) / float64(f.entries)
	if got := loaded.Stats().Entries; got != f.entries {
		return nil, fmt.Errorf("a snapshot of %d entries holds %d", f.entries, got)
	}
	return []CaseRow{r}, nil
}

// hashRows measures hashing of a prompt of 10,000 tokens.
func hashRows() []CaseRow {
	tokens := make([]uint32, 10_000)
	for i := range tokens {
		tokens[i] = uint32(i * 7919)
	}
	layout, seed := block.Layout{Size: blockSize}, block.NewSeed("", "")
	hashes := layout.AppendHashes(nil, tokens, seed)
	chains := block.AppendChains(nil, hashes)
	measure := func(name string, f func()) CaseRow {
		var all latencies
		for range 2000 {
			start := time.Now()
			f()
			all = append(all, time.Since(start))
		}
		r := CaseRow{Name: name, Entries: len(hashes), Cores: 1}
		all.into(&r)
		return r
	}
	return []CaseRow{
		measure("hash", func() { hashes = layout.AppendHashes(hashes[:0], tokens, seed) }),
		measure("hash-chains", func() { chains = block.AppendChains(chains[:0], hashes) }),
	}
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// latencies of one case.
type latencies []time.Duration

// into writes the median and the 99th percentile into a row.
func (l latencies) into(r *CaseRow) {
	if len(l) == 0 {
		return
	}
	slices.Sort(l)
	r.P50US, r.P99US = us(l[len(l)/2]), us(l[len(l)*99/100])
}

// worker is the key of a load's worker.
func worker(w int) fleet.Key { return fleet.Key{ID: uint64(w + 1)} }
