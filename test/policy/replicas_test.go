package policy_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// guessTTL is the default of speculationTTL.
const guessTTL = 5 * time.Second

// epoch is when simulated time begins.
var epoch = time.Unix(1_000_000, 0)

// replica is one picker with all that it knows.
type replica struct {
	index   *index.Index
	load    *load.Table
	others  *load.Engines // what the other pickers say
	picker  *pick.Picker
	scratch pick.Scratch
}

// replicas are pickers that take turns. Each knows at once what it does itself; what
// the others do, and what caches hold, it learns late.
type replicas struct {
	clock  *clock
	all    []*replica
	late   time.Duration // in telling the others
	next   int           // whose turn it is
	count  int           // requests
	random func(int) int
	fleet  *fleet.Snapshot
	placed map[*request]*placed
	trace  *trace
	err    error // the first
}

// placed is a request under way: who placed it, and where.
type placed struct {
	by       int
	id       []byte
	worker   fleet.Key // that computes the prompt
	decision pick.Decision
}

// newReplicas returns n pickers over a pool of workers with the given role, numbered
// from 1, and one large decode worker beside them where they do not decode.
func newReplicas(t testing.TB, n int, late time.Duration, o pick.Options, tr *trace, workers int, role fleet.Role) *replicas {
	t.Helper()
	var pool []fleet.Worker
	for i := range workers {
		pool = append(pool, worker(i+1, role))
	}
	if role == fleet.Prefill {
		pool = append(pool, worker(workers+1, fleet.Decode))
	}
	s, err := fleet.NewSnapshot(pool)
	if err != nil {
		t.Fatal(err)
	}
	rs := &replicas{
		clock: &clock{}, late: late, random: rand.New(rand.NewPCG(7, 7)).IntN,
		fleet: s, placed: map[*request]*placed{}, trace: tr,
	}
	for range n {
		r := &replica{index: index.New(), load: load.NewTable(), others: load.NewEngines()}
		r.picker = pick.New(r.index, index.NewSpeculation(guessTTL), r.load, blockSize)
		r.picker.SetOptions(o)
		if err := r.picker.SetFleet(s); err != nil {
			t.Fatal(err)
		}
		r.others.Feed(r.load)
		rs.all = append(rs.all, r)
	}
	return rs
}

func worker(id int, role fleet.Role) fleet.Worker {
	return fleet.Worker{
		Key: fleet.Key{ID: uint64(id)}, Name: fmt.Sprint("w", id), Role: role,
		Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(id >> 8), byte(id)}), 8000),
	}
}

func (rs *replicas) fail(err error) {
	if rs.err == nil && err != nil {
		rs.err = err
	}
}

// others calls do for every replica but one, when it learns of what happens now.
func (rs *replicas) others(one int, do func(*replica)) {
	for i, r := range rs.all {
		if i != one {
			rs.clock.after(rs.late, func() { do(r) })
		}
	}
}

// tell lets the other replicas know what became of a request.
func (rs *replicas) tell(p *placed, word load.Routed) {
	word.Request, word.Router, word.At = p.id, uint64(1_000_000+p.by), uint64(epoch.Add(rs.clock.now).UnixMilli())
	rs.others(p.by, func(r *replica) { r.others.Route(p.worker, word, epoch.Add(rs.clock.now)) })
}

func (rs *replicas) place(now time.Duration, r *request) int {
	by := rs.next
	rs.next = (rs.next + 1) % len(rs.all)
	me := rs.all[by]
	d, err := me.picker.Pick(&pick.Request{Tokens: r.input, Chains: r.chains}, epoch.Add(now), rs.random, &me.scratch)
	if err != nil {
		rs.fail(err)
		d.Prefill = rs.fleet.Workers[0]
	}
	rs.count++
	p := &placed{by: by, id: binary.AppendUvarint(nil, uint64(rs.count)), worker: d.Prefill.Key, decision: d}
	rs.placed[r] = p
	rs.tell(p, load.Routed{Kind: load.Placed, PrefillTokens: uint64(max(0, r.input-d.Matched*blockSize)), Blocks: uint64(len(r.ids))})
	return int(d.Prefill.ID) - 1
}

func (rs *replicas) prefilled(now time.Duration, r *request) {
	p := rs.placed[r]
	p.decision.PrefillDone(epoch.Add(now))
	rs.tell(p, load.Routed{Kind: load.PrefillDone})
}

func (rs *replicas) finished(now time.Duration, r *request) {
	p := rs.placed[r]
	delete(rs.placed, r)
	p.decision.Release(epoch.Add(now))
	rs.tell(p, load.Routed{Kind: load.Finished})
}

// apply tells all replicas of a change of a cache.
func (rs *replicas) apply(ev *kvevent.Event) {
	rs.others(-1, func(r *replica) { rs.fail(r.index.Apply(ev)) })
}

func (rs *replicas) stored(_ time.Duration, worker int, parent int32, ids []int32) {
	ev := &kvevent.Event{WorkerID: uint64(worker + 1), Kind: kvevent.Stored}
	if parent >= 0 {
		ev.HasParent, ev.Parent = true, kvevent.EngineHash(parent+1)
	}
	for _, id := range ids {
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(id + 1), Hash: rs.trace.hashes[id]})
	}
	rs.apply(ev)
}

func (rs *replicas) removed(_ time.Duration, worker int, ids []int32) {
	ev := &kvevent.Event{WorkerID: uint64(worker + 1), Kind: kvevent.Removed}
	for _, id := range ids {
		ev.Gone = append(ev.Gone, kvevent.EngineHash(id+1))
	}
	rs.apply(ev)
}

// left says what is still booked, which after a run is nothing.
func (rs *replicas) left() (figures []load.Figures) {
	for _, r := range rs.all {
		r.load.Read(func(_ fleet.Key, f load.Figures) { figures = append(figures, f) })
	}
	return slices.DeleteFunc(figures, func(f load.Figures) bool {
		return f.PrefillTokens == 0 && f.DecodeBlocks == 0 && f.Requests == 0
	})
}
