package pick_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
)

// traffic is a pool under simulated traffic: every worker that computes prompts does
// so one after the other, 10,000 tokens a second, and tells of the blocks when it is
// done. A request decodes for a while after that.
type traffic struct {
	*rig
	t      *testing.T
	now    time.Time
	events happenings
	free   map[uint64]time.Time // when a worker has computed what it was given

	prefills, decodes map[uint64]int
	waited            []time.Duration // for the first token
	held              map[uint64]map[block.Chain]bool
	decodeFor         time.Duration
}

const tokenTime = 100 * time.Microsecond

func newTraffic(t *testing.T, m pick.Model, pool ...fleet.Worker) *traffic {
	t.Helper()
	// Guesses last as long as prompts wait here.
	tr := &traffic{
		t: t, rig: newRig(t, time.Minute, pool...), now: start, free: map[uint64]time.Time{},
		prefills: map[uint64]int{}, decodes: map[uint64]int{}, held: map[uint64]map[block.Chain]bool{}, decodeFor: time.Second,
	}
	o := pick.DefaultOptions()
	o.Model = m
	tr.picker.SetOptions(o)
	return tr
}

// arrive lets a request of a prompt arrive after a pause.
func (tr *traffic) arrive(pause time.Duration, contents []block.Hash, chains []block.Chain, tokens int) {
	tr.now = tr.now.Add(pause)
	tr.until(tr.now)
	d, err := tr.picker.Pick(&pick.Request{Tokens: tokens, Chains: chains}, tr.now, tr.random, &tr.scratch)
	if err != nil {
		tr.t.Fatal(err)
	}
	w := d.Prefill.ID
	tr.prefills[w]++
	tr.decodes[d.Decode.ID]++
	left := tokens
	for _, c := range chains {
		if tr.held[w][c] {
			left -= blockSize
		}
	}
	begin := tr.now
	if tr.free[w].After(begin) {
		begin = tr.free[w]
	}
	done := begin.Add(time.Duration(left) * tokenTime)
	tr.free[w] = done
	if tr.held[w] == nil {
		tr.held[w] = map[block.Chain]bool{}
	}
	for _, c := range chains { // whoever comes later finds them
		tr.held[w][c] = true
	}
	tr.waited = append(tr.waited, done.Sub(tr.now))
	heap.Push(&tr.events, happening{done, func() {
		d.Reservation.PrefillDone(done)
		tr.hold(tr.t, w, contents, index.Depth{Device: len(contents)})
	}})
	heap.Push(&tr.events, happening{done.Add(tr.decodeFor), d.Reservation.Release})
}

// until lets all happen that does before a time.
func (tr *traffic) until(now time.Time) {
	for len(tr.events) > 0 && !tr.events[0].at.After(now) {
		heap.Pop(&tr.events).(happening).do()
	}
}

// percentile of the times to the first token.
func (tr *traffic) percentile(p int) time.Duration {
	slices.Sort(tr.waited)
	return tr.waited[(len(tr.waited)-1)*p/100]
}

type happening struct {
	at time.Time
	do func()
}

type happenings []happening

func (h happenings) Len() int           { return len(h) }
func (h happenings) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h happenings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)        { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// follow returns a prompt that begins as another one does, and goes on for some
// blocks of its own.
func follow(prefix []block.Hash, seed, blocks int) ([]block.Hash, []block.Chain) {
	own, _ := promptOf(seed, blocks)
	all := slices.Concat(prefix, own)
	return all, block.AppendChains(nil, all)
}

// Herding: prompts that share nothing, at 0.7 of what the pool can do. Nobody gets
// more than a few of a hundred more than a fair share, and nobody waits long.
func TestNoHerding(t *testing.T) {
	for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
		t.Run(m.String(), func(t *testing.T) {
			tr := newTraffic(t, m, workers(1, 8, fleet.Aggregated)...)
			random := rand.New(rand.NewPCG(5, 6))
			const n, tokens = 4000, 2000 // 0.2 s of work
			for i := range n {
				contents, chains := promptOf(100+i, tokens/blockSize)
				tr.arrive(time.Duration(random.ExpFloat64()*0.2/8/0.7*float64(time.Second)), contents, chains, tokens)
			}
			for id := range uint64(8) {
				if got := tr.prefills[id+1]; got < n/8*85/100 || got > n/8*115/100 {
					t.Errorf("worker %d got %d of %d, want %d ± 15 %%", id+1, got, n, n/8)
				}
			}
			if p90 := tr.percentile(90); p90 > 500*time.Millisecond {
				t.Errorf("a tenth waits more than %v for work of 0.2 s", p90)
			}
		})
	}
}

// A hot prefix: nine of ten requests begin with the same 8,000 tokens and go on with
// 800 of their own. Eight workers hold out 0.7 of the time once all have it. One
// worker could serve one in eight: the prefix spreads to all, each computes it once,
// and the rest, which is cold, finds idle workers.
func TestHotPrefixSpreads(t *testing.T) {
	for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
		t.Run(m.String(), func(t *testing.T) {
			tr := newTraffic(t, m, workers(1, 8, fleet.Aggregated)...)
			random := rand.New(rand.NewPCG(7, 8))
			prefix, _ := promptOf(1, 500)
			const n = 4000
			for i := range n {
				contents, chains := follow(prefix, 100+i, 50)
				if i%10 == 9 {
					contents, chains = promptOf(100+i, 50)
				}
				// 800 tokens are 80 ms.
				tr.arrive(time.Duration(random.ExpFloat64()*0.08/8/0.7*float64(time.Second)), contents, chains, len(contents)*blockSize)
			}
			for id := range uint64(8) {
				if got := tr.prefills[id+1]; got < n/8*70/100 || got > n/8*130/100 {
					t.Errorf("worker %d got %d of %d, want %d ± 30 %%", id+1, got, n, n/8)
				}
			}
			if p50, p99 := tr.percentile(50), tr.percentile(99); p50 > 200*time.Millisecond || p99 > 2*time.Second {
				t.Errorf("the median waits %v, one in a hundred %v, for work of 80 ms and 0.8 s for the prefix", p50, p99)
			}
		})
	}
}

// While one worker is enough for a hot prefix that it has computed, it stays there.
func TestHotPrefixStaysWhileItFits(t *testing.T) {
	tr := newTraffic(t, pick.Congestion, workers(1, 8, fleet.Aggregated)...)
	random := rand.New(rand.NewPCG(9, 10))
	prefix, _ := promptOf(1, 500)
	const n = 1000
	for i := range n {
		contents, chains := follow(prefix, 100+i, 5)
		if i == 1 {
			tr.now = tr.now.Add(2 * time.Second) // the first has been computed
		}
		tr.arrive(time.Duration(random.ExpFloat64()*0.008/0.3*float64(time.Second)), contents, chains, len(contents)*blockSize)
	}
	if len(tr.prefills) > 1 {
		t.Errorf("0.3 of one worker's time went to %d workers: %v", len(tr.prefills), tr.prefills)
	}
}

// Starvation: one prefill and five decode workers, single-turn prompts. All decode
// workers get the same, and the one prefill worker is no reason to refuse or to
// forget any.
func TestNoDecodeWorkerStarves(t *testing.T) {
	for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
		t.Run(m.String(), func(t *testing.T) {
			tr := newTraffic(t, m, append(workers(1, 1, fleet.Prefill), workers(11, 5, fleet.Decode)...)...)
			tr.decodeFor = 5 * time.Second
			random := rand.New(rand.NewPCG(11, 12))
			const n, tokens = 2000, 800
			for i := range n {
				contents, chains := promptOf(100+i, tokens/blockSize)
				tr.arrive(time.Duration(random.ExpFloat64()*0.08/0.8*float64(time.Second)), contents, chains, tokens)
			}
			for id := range uint64(5) {
				if got := tr.decodes[11+id]; got < n/5*95/100 || got > n/5*105/100 {
					t.Errorf("decode worker %d got %d of %d, want %d ± 5 %%", 11+id, got, n, n/5)
				}
			}
			if tr.prefills[1] != n {
				t.Errorf("the prefill worker got %d of %d", tr.prefills[1], n)
			}
			tr.until(tr.now.Add(time.Hour))
			for id, f := range tr.figures() {
				if f.PrefillTokens != 0 || f.DecodeBlocks != 0 || f.Requests != 0 {
					t.Error(fmt.Sprint("left on ", id, ": ", f))
				}
			}
		})
	}
}
