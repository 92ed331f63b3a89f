package policy_test

import (
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
	picker  *pick.Picker
	scratch pick.Scratch
}

// replicas are pickers that take turns. Each knows at once what it does itself; what
// the others do, and what caches hold, it learns late.
type replicas struct {
	clock  *clock
	all    []*replica
	late   time.Duration
	next   int
	random func(int) int
	fleet  *fleet.Snapshot
	booked map[*request]*booked
	trace  *trace
	err    error // the first
}

// booked is a request on all replicas.
type booked struct {
	by       int // who placed it
	bookings []*load.Reservation
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
		fleet: s, booked: map[*request]*booked{}, trace: tr,
	}
	for range n {
		r := &replica{index: index.New(), load: load.NewTable()}
		r.picker = pick.New(r.index, index.NewSpeculation(guessTTL), r.load, blockSize)
		r.picker.SetOptions(o)
		if err := r.picker.SetFleet(s); err != nil {
			t.Fatal(err)
		}
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

// others calls do for every replica but one, when they learn of it.
func (rs *replicas) others(one int, do func(int, *replica)) {
	for i, r := range rs.all {
		if i != one {
			rs.clock.after(rs.late, func() { do(i, r) })
		}
	}
}

func (rs *replicas) place(now time.Duration, r *request) int {
	by := rs.next
	rs.next = (rs.next + 1) % len(rs.all)
	me := rs.all[by]
	d, err := me.picker.Pick(&pick.Request{Tokens: r.input, Chains: r.chains}, epoch.Add(now), rs.random, &me.scratch)
	if err != nil {
		rs.fail(err)
		return 0
	}
	b := &booked{by: by, bookings: make([]*load.Reservation, len(rs.all))}
	b.bookings[by] = d.Reservation
	rs.booked[r] = b
	rs.others(by, func(i int, other *replica) {
		prefill, decode := other.load.Worker(d.Prefill.Key), other.load.Worker(d.Decode.Key)
		other.load.Lock()
		defer other.load.Unlock()
		b.bookings[i] = other.load.Reserve(load.Booking{
			At: epoch.Add(rs.clock.now), PrefillTokens: max(0, r.input-d.Matched*blockSize),
			Blocks: len(r.ids), Chains: r.chains,
			PrefillKey: d.Prefill.Key, DecodeKey: d.Decode.Key, Prefill: prefill, Decode: decode,
		})
	})
	return int(d.Prefill.ID) - 1
}

func (rs *replicas) prefilled(now time.Duration, r *request) {
	b := rs.booked[r]
	b.bookings[b.by].PrefillDone(epoch.Add(now))
	rs.others(b.by, func(i int, _ *replica) { b.bookings[i].PrefillDone(epoch.Add(rs.clock.now)) })
}

func (rs *replicas) finished(_ time.Duration, r *request) {
	b := rs.booked[r]
	delete(rs.booked, r)
	b.bookings[b.by].Release()
	rs.others(b.by, func(i int, _ *replica) { b.bookings[i].Release() })
}

// apply tells all replicas of a change of a cache.
func (rs *replicas) apply(ev *kvevent.Event) {
	rs.others(-1, func(_ int, r *replica) { rs.fail(r.index.Apply(ev)) })
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
