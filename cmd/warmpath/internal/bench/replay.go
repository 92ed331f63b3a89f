package bench

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

const (
	// cacheShare is the size of all caches together, as a part of the trace's
	// distinct blocks: as in the smallest caches of policy.md.
	cacheShare = 0.25
	// slack is how far above the mean the blocks placed on a worker may be.
	slack = 1.25
	// replayTime is the least time that is measured: the trace is replayed into one
	// new index after the other until then, at most replayPasses times.
	replayTime   = time.Second
	replayPasses = 50
)

// turn is one request of a trace: it is looked up, and its worker says what
// changed in its cache.
type turn struct {
	chains []block.Chain
	worker int
	held   int // blocks that the worker holds by then
	events []kvevent.Event
}

// replayRows replays a trace over 8 and over 64 workers.
func replayRows(ctx context.Context, cfg IndexConfig, prompts [][]uint64) ([]CaseRow, error) {
	var rows []CaseRow
	for _, workers := range []int{8, 64} {
		fmt.Fprintf(cfg.Progress, "replay of %d requests over %d workers …\n", len(prompts), workers)
		turns := simulate(prompts, workers)
		more, err := rounds(ctx, cfg.Rounds, func() ([]CaseRow, error) { return replay(turns, workers) })
		if err != nil {
			return nil, fmt.Errorf("replay over %d workers: %w", workers, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// simulate places every request where most of it is held, among the workers that
// are not far above the mean, and lets that worker's cache change.
func simulate(ids [][]uint64, workers int) []turn {
	distinct := map[uint64]struct{}{}
	longest := 0
	for _, prompt := range ids {
		longest = max(longest, len(prompt))
		for _, id := range prompt {
			distinct[id] = struct{}{}
		}
	}
	caches := make([]*cache, workers)
	for w := range caches {
		caches[w] = newCache(max(longest, int(cacheShare*float64(len(distinct)))/workers))
	}
	placed, total := make([]int, workers), 0
	next := make([]uint64, workers) // event ids
	turns := make([]turn, len(ids))
	for i, prompt := range ids {
		hashes := make([]block.Hash, len(prompt))
		for j, id := range prompt {
			hashes[j] = block.Hash((id + 1) * 0x9e3779b97f4a7c15)
		}
		chains := block.AppendChains(nil, hashes)
		w := place(caches, placed, chains, int(slack*float64(total+len(chains))/float64(workers)))
		placed[w] += len(chains)
		total += len(chains)
		turns[i] = turn{chains: chains, worker: w, held: caches[w].held(chains)}
		turns[i].events = changes(caches[w], w, hashes, chains, &next[w])
	}
	return turns
}

// place chooses the worker that holds most of a prompt, of those with no more than
// limit blocks placed; of equals the one with least.
func place(caches []*cache, placed []int, prompt []block.Chain, limit int) int {
	least := 0
	for w := range placed {
		if placed[w] < placed[least] {
			least = w
		}
	}
	best, most := least, caches[least].held(prompt)
	for w := range placed {
		if placed[w] > limit {
			continue
		}
		if held := caches[w].held(prompt); held > most || held == most && placed[w] < placed[best] {
			best, most = w, held
		}
	}
	return best
}

// changes puts a prompt into a worker's cache and returns its events: what left,
// then what came.
func changes(c *cache, w int, hashes []block.Hash, chains []block.Chain, id *uint64) []kvevent.Event {
	key := worker(w).ID
	engine := func(b block.Chain) kvevent.EngineHash {
		return kvevent.EngineHash(bits.RotateLeft64(uint64(b), int(key)))
	}
	var events []kvevent.Event
	held := c.held(chains)
	if gone := c.use(chains); len(gone) > 0 {
		*id++
		ev := kvevent.Event{WorkerID: key, ID: *id, Kind: kvevent.Removed}
		for _, b := range gone {
			ev.Gone = append(ev.Gone, engine(b))
		}
		events = append(events, ev)
	}
	if held < len(chains) {
		*id++
		ev := kvevent.Event{WorkerID: key, ID: *id, Kind: kvevent.Stored}
		if held > 0 {
			ev.HasParent, ev.Parent = true, engine(chains[held-1])
		}
		for i := held; i < len(chains); i++ {
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: engine(chains[i]), Hash: hashes[i]})
		}
		events = append(events, ev)
	}
	return events
}

// replay measures block operations: blocks looked up, stored and removed.
func replay(turns []turn, workers int) ([]CaseRow, error) {
	shares := share(turns, workers)
	ops := 0
	for i := range turns {
		ops += turns[i].ops()
	}
	var all latencies
	var total, cpu time.Duration
	passes := 0
	var x *index.Index
	for ; total < replayTime && passes < replayPasses; passes++ {
		x = index.New()
		for w := range workers {
			if _, err := x.Register(worker(w)); err != nil {
				return nil, err
			}
		}
		runtime.GC()
		before := cpuTime()
		took, found, err := replayOnce(x, shares)
		if err != nil {
			return nil, err
		}
		total, cpu = total+took, cpu+cpuTime()-before
		all = append(all, found...)
	}
	if s := x.Stats(); s.UnknownParents+s.UnknownRemovals+s.Replaced+s.Duplicates > 0 {
		return nil, fmt.Errorf("the index and the simulated caches do not agree: %+v", s)
	}
	r := CaseRow{Name: "replay-mooncake", Workers: workers, Holders: 0, Entries: x.Stats().Entries, Cores: len(shares)}
	r.speed(passes*ops, total, cpu)
	r.BlocksPerSCore = r.BlocksPerS / float64(r.Cores)
	all.into(&r)
	return []CaseRow{r}, nil
}

func (t *turn) ops() int {
	n := len(t.chains)
	for i := range t.events {
		n += len(t.events[i].Blocks) + len(t.events[i].Gone)
	}
	return n
}

// share gives every core the requests of some workers, in the order of the trace,
// about as much to each.
func share(turns []turn, workers int) [][]turn {
	work := make([]int, workers)
	for i := range turns {
		work[turns[i].worker] += turns[i].ops()
	}
	byWork := make([]int, workers)
	for w := range byWork {
		byWork[w] = w
	}
	slices.SortStableFunc(byWork, func(a, b int) int { return work[b] - work[a] })
	cores := runtime.GOMAXPROCS(0)
	core, full := make([]int, workers), make([]int, cores)
	for _, w := range byWork {
		c := slices.Index(full, slices.Min(full))
		core[w] = c
		full[c] += work[w]
	}
	shares := make([][]turn, cores)
	for _, t := range turns {
		shares[core[t.worker]] = append(shares[core[t.worker]], t)
	}
	return shares
}

// replayOnce replays on all cores until the last event is applied. Whatever the
// others do, a worker's own part of each answer is known beforehand.
func replayOnce(x *index.Index, shares [][]turn) (time.Duration, latencies, error) {
	found := make([]latencies, len(shares))
	for core := range shares {
		found[core] = make(latencies, 0, len(shares[core]))
	}
	took, err := onAllCores(len(shares), func(_, core int) error {
		var m index.Match
		for i := range shares[core] {
			t := &shares[core][i]
			slot, _ := x.Lookup(worker(t.worker))
			start := time.Now()
			x.Match(t.chains, &m)
			found[core] = append(found[core], time.Since(start))
			if got := m.Depth(slot).Device; got != t.held {
				return fmt.Errorf("a lookup found %d blocks on its worker, not %d", got, t.held)
			}
			if err := applyEvents(x, t.events); err != nil {
				return err
			}
		}
		return nil
	})
	return took, slices.Concat(found...), err
}
