package bench

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// lookupsPerCase are timed one by one, fewer of a workload that is shrunk.
const lookupsPerCase = 20_000

// question is a prompt with the answer: the slot of a worker that holds all of it.
type question struct {
	chains []block.Chain
	holder index.Slot
}

// questions are the prompts of a length class that one of the first workers
// holds.
func (f *filling) questions(long bool, workers int) ([]question, error) {
	var list []question
	for i, chains := range f.prompts.chains {
		first := f.load.holders(i)[0]
		if (len(chains) == longBlocks) != long || first >= workers {
			continue
		}
		slot, known := f.index.Lookup(worker(first))
		if !known {
			return nil, fmt.Errorf("worker %d is not in the index", first)
		}
		list = append(list, question{chains, slot})
	}
	return list, nil
}

// lookups measures lookups of short and of long prompts, idle and beside a writer
// that never rests.
func (f *filling) lookups() ([]CaseRow, error) {
	var rows []CaseRow
	for _, m := range []struct {
		name   string
		long   bool
		beside func(stop *atomic.Bool) error
	}{
		{"match-128", false, nil},
		{"match-128-writer", false, func(stop *atomic.Bool) error { return churn(f.index, stop) }},
		{"match-1000", true, nil},
		{"match-1000-writer", true, func(stop *atomic.Bool) error { return churn(f.index, stop) }},
	} {
		if m.long && f.branchy {
			continue // it has no long prompts
		}
		asked, err := f.questions(m.long, f.workers)
		if err != nil {
			return nil, err
		}
		r := f.row(m.name)
		if err := matchBeside(&r, f.index, asked, f.times, m.beside); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// matchBeside looks prompts up while something else goes on, if anything, and
// notes median and 99th percentile. Every answer is checked.
func matchBeside(r *CaseRow, x *index.Index, asked []question, n int, beside func(stop *atomic.Bool) error) error {
	var stop atomic.Bool
	other := make(chan error, 1)
	if beside == nil {
		other <- nil
	} else {
		go func() { other <- beside(&stop) }()
	}
	var m index.Match
	all := make(latencies, 0, n)
	var wrong error
	for i := range n {
		took, err := ask(x, &asked[i*7919%len(asked)], &m)
		if err != nil {
			wrong = fmt.Errorf("%s: %w", r.Name, err)
			break
		}
		all = append(all, took)
	}
	stop.Store(true)
	if err := <-other; err != nil {
		return fmt.Errorf("%s: beside it: %w", r.Name, err)
	}
	all.into(r)
	return wrong
}

// ask looks one prompt up and checks the answer, which is not timed.
func ask(x *index.Index, q *question, m *index.Match) (time.Duration, error) {
	start := time.Now()
	x.Match(q.chains, m)
	took := time.Since(start)
	if got := m.Depth(q.holder).Device; got != len(q.chains) {
		return 0, fmt.Errorf("a lookup found %d of %d blocks", got, len(q.chains))
	}
	return took, nil
}

// churn stores and removes prompts of a worker of its own until told to stop. In
// the end that worker is gone.
func churn(x *index.Index, stop *atomic.Bool) error {
	const id = 1 << 40
	defer x.Drop(fleet.Key{ID: id})
	p := newPrompts(100, shortPrompts/100, 1, false)
	next := uint64(1)
	for {
		for i := range p.hashes {
			for _, ev := range p.events(i, id, next) {
				next++
				if err := x.Apply(&ev); err != nil {
					return err
				}
				if stop.Load() {
					return nil
				}
				if i%2 == 1 {
					next++
					if err := x.Apply(removal(&ev, next)); err != nil {
						return err
					}
				}
			}
		}
		x.Clear(fleet.Key{ID: id})
	}
}

// backlogTime is how long lookups are asked for while events wait.
const backlogTime = 500 * time.Millisecond

// backlog counts the lookups that are answered while every core has events to
// apply, more than it can.
func (f *filling) backlog() ([]CaseRow, error) {
	asked, err := f.questions(false, f.workers)
	if err != nil {
		return nil, err
	}
	// The writers' workers are others than those that hold the prompts, or the
	// answers would change; their prompts are the same ones.
	var stop atomic.Bool
	var writing sync.WaitGroup
	cores := runtime.GOMAXPROCS(0)
	errs := make(chan error, cores)
	for core := range cores {
		writing.Go(func() { errs <- f.rewrite(uint64(1<<41+core), core, &stop) })
	}
	var m index.Match
	all := make(latencies, 0, 1<<20)
	for start := time.Now(); time.Since(start) < backlogTime && err == nil; {
		var took time.Duration
		took, err = ask(f.index, &asked[len(all)*7919%len(asked)], &m)
		all = append(all, took)
	}
	stop.Store(true)
	writing.Wait()
	for range cores {
		if e := <-errs; e != nil {
			return nil, e
		}
	}
	if err != nil {
		return nil, err
	}
	r := f.row("backlog")
	all.into(&r)
	r.Lookups, r.MaxUS = float64(len(all)), us(all[len(all)-1])
	return []CaseRow{r}, nil
}

// rewrite lets one more worker store a thousand of the prompts, forget them and
// start again, without a pause, until told to stop. In the end it holds nothing.
func (f *filling) rewrite(id uint64, from int, stop *atomic.Bool) error {
	var events []kvevent.Event
	for i := range min(1000, len(f.prompts.hashes)) {
		events = append(events, f.prompts.events((from+i)%len(f.prompts.hashes), id, uint64(len(events)+1))...)
	}
	defer f.index.Drop(fleet.Key{ID: id})
	for {
		for i := range events {
			if stop.Load() {
				return nil
			}
			if err := f.index.Apply(&events[i]); err != nil {
				return err
			}
		}
		f.index.Clear(fleet.Key{ID: id})
	}
}

// drops measures how long it takes to drop a worker, then lookups beside a
// goroutine that drops workers, fills them again, and so sweeps. It leaves the
// index without half of its workers.
func (f *filling) drops() ([]CaseRow, error) {
	keep := f.workers / 2
	var all latencies
	for w := keep; w < f.workers; w++ {
		start := time.Now()
		f.index.Drop(worker(w))
		all = append(all, time.Since(start))
	}
	drop := f.row("drop")
	all.into(&drop)
	asked, err := f.questions(false, keep)
	if err != nil {
		return nil, err
	}
	beside := f.row("match-128-drop")
	err = matchBeside(&beside, f.index, asked, f.times, func(stop *atomic.Bool) error {
		for w := keep; ; w++ {
			if w == f.workers {
				w = keep
			}
			events := f.load.byWorker[w]
			for i := range events {
				if stop.Load() {
					return nil
				}
				if err := f.index.Apply(&events[i]); err != nil {
					return err
				}
			}
			f.index.Drop(worker(w))
		}
	})
	return []CaseRow{drop, beside}, err
}
