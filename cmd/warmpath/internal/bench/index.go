package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// IndexConfig says how Index measures.
type IndexConfig struct {
	Rounds   int // the median counts
	JSON     bool
	Out      io.Writer
	Progress io.Writer
}

// IndexRow is one case. Fields that a case does not measure are left out.
type IndexRow struct {
	Name          string  `json:"name"`
	Workers       int     `json:"workers"`
	Holders       int     `json:"holders"`
	Entries       int     `json:"entries"`
	BlocksPerS    float64 `json:"blocks_per_s,omitempty"`
	P50US         float64 `json:"p50_us,omitempty"`
	P99US         float64 `json:"p99_us,omitempty"`
	BytesPerEntry float64 `json:"bytes_per_entry,omitempty"`
	Cores         int     `json:"cores"`
}

// cell is one filling of the index.
type cell struct {
	workers, holders int
	branchy          bool
}

var cells = []cell{{8, 1, false}, {64, 1, false}, {64, 8, false}, {64, 64, false}, {64, 1, true}}

// Index measures the prefix index in this process: events applied by two
// goroutines, lookups idle and beside a writer that never rests, memory, dropping
// a worker, hashing.
func Index(ctx context.Context, cfg IndexConfig) error {
	rows := []IndexRow{}
	for _, c := range cells {
		fmt.Fprintf(cfg.Progress, "%d workers, %d holders, branchy %v …\n", c.workers, c.holders, c.branchy)
		var rounds [][]IndexRow
		for range cfg.Rounds {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			more, err := measureIndex(c)
			if err != nil {
				return err
			}
			rounds = append(rounds, more)
		}
		rows = append(rows, medians(rounds)...)
	}
	rows = append(rows, hashRows()...)
	return writeIndex(cfg, rows)
}

// medians takes the median of each figure over rounds of the same cases.
func medians(rounds [][]IndexRow) []IndexRow {
	out := slices.Clone(rounds[0])
	for i := range out {
		pick := func(f func(*IndexRow) *float64) {
			var values []float64
			for _, r := range rounds {
				values = append(values, *f(&r[i]))
			}
			slices.Sort(values)
			*f(&out[i]) = values[len(values)/2]
		}
		pick(func(r *IndexRow) *float64 { return &r.BlocksPerS })
		pick(func(r *IndexRow) *float64 { return &r.P50US })
		pick(func(r *IndexRow) *float64 { return &r.P99US })
		pick(func(r *IndexRow) *float64 { return &r.BytesPerEntry })
	}
	return out
}

func measureIndex(c cell) ([]IndexRow, error) {
	p := newPrompts(c.holders, c.branchy)
	load := p.place(c.workers, c.holders)
	suffix := ""
	if c.branchy {
		suffix = "-branchy"
	}
	before := heap()
	x := index.New()
	took, err := applyAll(x, load)
	if err != nil {
		return nil, err
	}
	bytes := heap() - before
	entries := x.Stats().Entries
	row := func(name string) IndexRow {
		return IndexRow{Name: name + suffix, Workers: c.workers, Holders: c.holders, Entries: entries, Cores: runtime.GOMAXPROCS(0)}
	}
	apply, memory := row("apply"), row("memory")
	apply.BlocksPerS = float64(load.blocks) / took.Seconds()
	memory.BytesPerEntry = float64(bytes) / float64(entries)
	wire := row("apply-wire")
	if wire.BlocksPerS, err = applyWire(load); err != nil {
		return nil, err
	}
	rows := []IndexRow{apply, wire, memory}

	short, long := p.split()
	for _, m := range []struct {
		name   string
		chains [][]block.Chain
		writer bool
	}{{"match-128", short, false}, {"match-128-writer", short, true}, {"match-1000", long, false}, {"match-1000-writer", long, true}} {
		if len(m.chains) == 0 {
			continue
		}
		r := row(m.name)
		if r.P50US, r.P99US, err = matchAll(x, m.chains, m.writer); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	drop := row("drop")
	start := time.Now()
	x.Drop(fleet.Key{ID: 1})
	drop.P50US = us(time.Since(start))
	drop.P99US = drop.P50US
	runtime.KeepAlive(x)
	return append(rows, drop), nil
}

// split returns the chains of the short and of the long prompts.
func (p *prompts) split() (short, long [][]block.Chain) {
	for _, c := range p.chains {
		if len(c) == longBlocks {
			long = append(long, c)
		} else {
			short = append(short, c)
		}
	}
	return short, long
}

// heap returns the live heap, bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// applyAll applies a load with one goroutine per core; the events of a worker stay
// on one.
func applyAll(x *index.Index, load *eventLoad) (time.Duration, error) {
	var wg sync.WaitGroup
	errs := make(chan error, len(load.byWorker))
	cores := runtime.GOMAXPROCS(0)
	start := time.Now()
	for core := range cores {
		wg.Go(func() {
			for w := core; w < len(load.byWorker); w += cores {
				for i := range load.byWorker[w] {
					if err := x.Apply(&load.byWorker[w][i]); err != nil {
						errs <- err
						return
					}
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	close(errs)
	return took, <-errs
}

// applyWire decodes Dynamo's messages and applies their events to an empty index,
// with one goroutine per core. It returns blocks per second, all of it applied.
func applyWire(load *eventLoad) (float64, error) {
	messages := make([][][]byte, len(load.byWorker))
	for w, events := range load.byWorker {
		for i := 0; i < len(events); i += eventsPerMessage {
			batch := events[i:min(i+eventsPerMessage, len(events))]
			env := dynamo.Envelope{PublisherID: uint64(w) + 1<<20, Sequence: uint64(i), Topic: dynamo.TopicKVEvents}
			msg, err := dynamo.AppendMessage(nil, dynamo.Gen14, env, batch)
			if err != nil {
				return 0, err
			}
			messages[w] = append(messages[w], msg)
		}
	}
	x := index.New()
	var wg sync.WaitGroup
	cores := runtime.GOMAXPROCS(0)
	errs := make(chan error, cores)
	start := time.Now()
	for core := range cores {
		wg.Go(func() {
			var d dynamo.Decoder
			var failed error
			apply := func(ev *kvevent.Event) {
				if err := x.Apply(ev); err != nil {
					failed = err
				}
			}
			for w := core; w < len(messages); w += cores {
				for _, msg := range messages[w] {
					if _, err := d.Decode(msg, dynamo.EndpointScope, apply); err != nil {
						failed = err
					}
				}
			}
			errs <- failed
		})
	}
	wg.Wait()
	took := time.Since(start)
	for range cores {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	if got := x.Stats().Stored; got != uint64(load.blocks) {
		return 0, fmt.Errorf("%d of %d blocks arrived in the index", got, load.blocks)
	}
	return float64(load.blocks) / took.Seconds(), nil
}

// eventsPerMessage is how many stored events of 16 blocks go into one message, as
// in the measurement of peers.
const eventsPerMessage = 4

const lookups = 20_000

// matchAll looks prompts up and returns the median and the 99th percentile of one
// lookup, in us. Every answer's depth is checked.
func matchAll(x *index.Index, chains [][]block.Chain, writer bool) (p50, p99 float64, err error) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	if writer {
		wg.Go(func() { churn(x, &stop) })
	}
	var m index.Match
	latencies := make([]time.Duration, 0, lookups)
	for i := range lookups {
		c := chains[i*7919%len(chains)]
		start := time.Now()
		x.Match(c, &m)
		latencies = append(latencies, time.Since(start))
		if deepest(x, &m) != len(c) {
			err = fmt.Errorf("a lookup found %d of %d blocks", deepest(x, &m), len(c))
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	slices.Sort(latencies)
	if len(latencies) == 0 {
		return 0, 0, err
	}
	return us(latencies[len(latencies)/2]), us(latencies[len(latencies)*99/100]), err
}

func deepest(x *index.Index, m *index.Match) int {
	most := 0
	for s := range index.Slot(x.Stats().Workers + 1) {
		most = max(most, m.Depth(s).Total())
	}
	return most
}

// churn stores and removes prompts of a worker of its own until told to stop.
func churn(x *index.Index, stop *atomic.Bool) {
	const worker = 1 << 40
	p := newPrompts(shortPrompts/100, false)
	id := uint64(1)
	for !stop.Load() {
		for i := range p.hashes {
			for _, ev := range p.events(i, worker, id) {
				id++
				if x.Apply(&ev) != nil || stop.Load() {
					return
				}
				gone := kvevent.Event{WorkerID: worker, ID: id, Kind: kvevent.Removed}
				for j := range ev.Blocks {
					gone.Gone = append(gone.Gone, ev.Blocks[len(ev.Blocks)-1-j].Engine)
				}
				if i%2 == 1 {
					id++
					if x.Apply(&gone) != nil {
						return
					}
				}
			}
		}
		id++
		if x.Apply(&kvevent.Event{WorkerID: worker, ID: id, Kind: kvevent.Cleared}) != nil {
			return
		}
	}
}

// hashRows measures hashing 10,000 tokens in blocks of 16: content hashes, and the
// chains on top.
func hashRows() []IndexRow {
	tokens := make([]uint32, 10_000)
	for i := range tokens {
		tokens[i] = uint32(i * 7919)
	}
	layout, seed := block.Layout{Size: blockSize}, block.NewSeed("", "")
	hashes := layout.AppendHashes(nil, tokens, seed)
	chains := block.AppendChains(nil, hashes)
	measure := func(name string, f func()) IndexRow {
		var all []time.Duration
		for range 2000 {
			start := time.Now()
			f()
			all = append(all, time.Since(start))
		}
		slices.Sort(all)
		return IndexRow{Name: name, Entries: len(hashes), P50US: us(all[len(all)/2]), P99US: us(all[len(all)*99/100]), Cores: 1}
	}
	return []IndexRow{
		measure("hash", func() { hashes = layout.AppendHashes(hashes[:0], tokens, seed) }),
		measure("hash-chains", func() { chains = block.AppendChains(chains[:0], hashes) }),
	}
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func writeIndex(cfg IndexConfig, rows []IndexRow) error {
	if cfg.JSON {
		return json.NewEncoder(cfg.Out).Encode(map[string]any{"rows": rows})
	}
	figure := func(v float64, digits int) string {
		if v == 0 {
			return "-"
		}
		return strconv.FormatFloat(v, 'f', digits, 64)
	}
	t := tabwriter.NewWriter(cfg.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "case\tworkers\tholders\tentries\tM blocks/s\tp50 us\tp99 us\tbytes/entry\tcores\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t\n", r.Name, r.Workers, r.Holders, r.Entries,
			figure(r.BlocksPerS/1e6, 2), figure(r.P50US, 1), figure(r.P99US, 1), figure(r.BytesPerEntry, 0), r.Cores)
	}
	return t.Flush()
}
