package pick_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

const (
	blockSize = 16
	ttl       = 2 * time.Second
)

var start = time.Unix(1000, 0)

// rig is a picker with the parts it decides over.
type rig struct {
	index   *index.Index
	guesses *index.Speculation
	load    *load.Table
	picker  *pick.Picker
	scratch pick.Scratch
	random  func(int) int
}

func newRig(t testing.TB, ttl time.Duration, workers ...fleet.Worker) *rig {
	t.Helper()
	r := &rig{index: index.New(), guesses: index.NewSpeculation(ttl), load: load.NewTable(), random: rand.New(rand.NewPCG(1, 2)).IntN}
	r.picker = pick.New(r.index, r.guesses, r.load, blockSize)
	o := pick.DefaultOptions()
	o.Model = pick.Dynamo
	r.picker.SetOptions(o)
	if err := r.picker.SetFleet(snapshot(t, workers...)); err != nil {
		t.Fatal(err)
	}
	return r
}

func snapshot(t testing.TB, workers ...fleet.Worker) *fleet.Snapshot {
	t.Helper()
	s, err := fleet.NewSnapshot(workers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// worker is worker number id with an endpoint of its own.
func worker(id uint64, role fleet.Role) fleet.Worker {
	return fleet.Worker{
		Key: fleet.Key{ID: id}, Name: fmt.Sprint("w", id), Role: role,
		Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(id >> 8), byte(id)}), 8000),
	}
}

// workers are n workers of a role, numbered from first.
func workers(first uint64, n int, role fleet.Role) []fleet.Worker {
	var all []fleet.Worker
	for i := range n {
		all = append(all, worker(first+uint64(i), role))
	}
	return all
}

// promptOf returns contents and chains of a prompt of n blocks; prompts of
// different seeds share nothing.
func promptOf(seed, n int) ([]block.Hash, []block.Chain) {
	contents := make([]block.Hash, n)
	for i := range contents {
		contents[i] = block.Hash(seed*1_000_000 + i)
	}
	return contents, block.AppendChains(nil, contents)
}

// hold makes a worker hold the first depth blocks of a prompt, tier after tier.
func (r *rig) hold(t interface{ Fatal(args ...any) }, id uint64, contents []block.Hash, depth index.Depth) {
	ev := kvevent.Event{WorkerID: id, Kind: kvevent.Stored}
	at := 0
	if depth.Total() == 0 {
		return
	}
	for tier, n := range []int{depth.Device, depth.Host, depth.Disk, depth.External} {
		ev.Tier, ev.Blocks = kvevent.Tier(tier), nil
		ev.HasParent, ev.Parent = at > 0, kvevent.EngineHash(contents[max(0, at-1)])
		for _, h := range contents[at : at+n] {
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(h), Hash: h})
		}
		at += n
		if err := r.index.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
}

// busy books load on a worker, which may be of any role.
func (r *rig) busy(id uint64, tokens, blocks int) *load.Reservation {
	w := r.load.Worker(fleet.Key{ID: id})
	r.load.Lock()
	defer r.load.Unlock()
	return r.load.Reserve(load.Booking{
		PrefillTokens: tokens, Blocks: blocks,
		PrefillKey: fleet.Key{ID: id}, DecodeKey: fleet.Key{ID: id}, Prefill: w, Decode: w,
	})
}

// uses makes a worker decode a request of some full blocks.
func (r *rig) uses(id uint64, chains []block.Chain) *load.Reservation {
	w := r.load.Worker(fleet.Key{ID: id})
	r.load.Lock()
	defer r.load.Unlock()
	return r.load.Reserve(load.Booking{
		Blocks: len(chains), Chains: chains, PrefillKey: fleet.Key{ID: id}, DecodeKey: fleet.Key{ID: id}, Prefill: w, Decode: w,
	})
}

func (r *rig) figures() map[uint64]load.Figures {
	all := map[uint64]load.Figures{}
	r.load.Read(func(k fleet.Key, f load.Figures) { all[k.ID] = f })
	return all
}

func (r *rig) pick(req pick.Request) (pick.Decision, error) {
	return r.picker.Pick(&req, start, r.random, &r.scratch)
}

func (r *rig) mustPick(t testing.TB, req pick.Request) pick.Decision {
	t.Helper()
	d, err := r.pick(req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// guessed returns the depth that guesses alone give a worker.
func (r *rig) guessed(t testing.TB, id uint64, chains []block.Chain) int {
	t.Helper()
	slot, ok := r.index.Lookup(fleet.Key{ID: id})
	if !ok {
		t.Fatalf("worker %d is not in the index", id)
	}
	var m index.Match
	r.index.Match(chains, &m)
	before := m.Depth(slot).Device
	r.guesses.Merge(start, chains, &m)
	return m.Depth(slot).Device - before
}

// in is a subset of endpoints and bare addresses.
func in(entries ...string) pick.Subset {
	s := pick.Subset{Present: true}
	for _, e := range entries {
		if ep, err := netip.ParseAddrPort(e); err == nil {
			s.Endpoints = append(s.Endpoints, ep)
		} else {
			s.Addrs = append(s.Addrs, netip.MustParseAddr(e))
		}
	}
	return s
}
