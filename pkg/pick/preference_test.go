package pick_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// Requests of a session go to the same idle worker, those of many sessions to all.
func TestSessions(t *testing.T) {
	r := newRig(t, 0, workers(1, 8, fleet.Aggregated)...)
	r.picker.SetOptions(pick.DefaultOptions())
	counts := map[uint64]int{}
	for i := range 800 {
		req := pick.Request{Tokens: 160, Session: fmt.Sprint("session ", i)}
		first := r.mustPick(t, req)
		first.Reservation.Release()
		for range 3 {
			again := r.mustPick(t, req)
			if again.Decode.ID != first.Decode.ID {
				t.Fatalf("session %d: worker %d, then %d", i, first.Decode.ID, again.Decode.ID)
			}
			again.Reservation.Release()
		}
		counts[first.Decode.ID]++
	}
	for id, n := range counts {
		if n < 60 || n > 140 {
			t.Errorf("worker %d has %d of 800 sessions, want about 100", id, n)
		}
	}
}

// A session is a tie-break: load and what workers hold come first.
func TestSessionIsNoPin(t *testing.T) {
	contents, chains := promptOf(1, 10)
	for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
		r := newRig(t, 0, workers(1, 2, fleet.Aggregated)...)
		o := pick.DefaultOptions()
		o.Model = m
		r.picker.SetOptions(o)
		req := pick.Request{Tokens: 160, Chains: chains, Session: "s"}
		d := r.mustPick(t, req)
		home := d.Decode.ID
		d.Reservation.Release()
		other := 3 - home
		busy := r.busy(home, 3*blockSize, 0)
		if d := r.mustPick(t, req); d.Decode.ID != other {
			t.Errorf("%v: three blocks wait at home, yet it goes there", m)
		} else {
			d.Reservation.Release()
		}
		busy.Release()
		r.hold(t, other, contents, index.Depth{Device: 5})
		if d := r.mustPick(t, req); d.Decode.ID != other {
			t.Errorf("%v: the other worker holds half, yet it goes home", m)
		}
	}
}

// A request avoids the endpoints where it failed, unless there are no others.
func TestAvoid(t *testing.T) {
	contents, chains := promptOf(1, 10)
	for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
		r := newRig(t, 0, workers(1, 2, fleet.Aggregated)...)
		o := pick.DefaultOptions()
		o.Model = m
		r.picker.SetOptions(o)
		r.hold(t, 1, contents, index.Depth{Device: 10})
		r.busy(2, 100_000, 1000)
		req := pick.Request{Tokens: 160, Chains: chains, Avoid: []netip.AddrPort{worker(1, 0).Endpoint}}
		if d := r.mustPick(t, req); d.Decode.ID != 2 {
			t.Errorf("%v: the avoided worker was taken", m)
		}
		req.Avoid = append(req.Avoid, worker(2, 0).Endpoint)
		if d := r.mustPick(t, req); d.Decode.ID != 1 {
			t.Errorf("%v: with all avoided, worker %d", m, d.Decode.ID)
		}
	}
}

// Classes have knobs of their own; a class that nobody named has those of all.
func TestClasses(t *testing.T) {
	contents, chains := promptOf(1, 10)
	r := newRig(t, 0, workers(1, 2, fleet.Aggregated)...)
	o := pick.DefaultOptions()
	o.Model = pick.Dynamo
	o.Classes = map[string]pick.ClassKnobs{"load only": {OverlapScoreCredit: new(0.0)}, "heavy": {PrefillLoadScale: new(100.0)}}
	r.picker.SetOptions(o)
	r.hold(t, 1, contents, index.Depth{Device: 2, Host: 2})
	r.busy(1, 0, 10)
	for class, want := range map[string]uint64{"": 2, "unknown": 2, "load only": 2, "heavy": 1} {
		d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains, Class: class})
		if d.Decode.ID != want {
			t.Errorf("class %q: worker %d, want %d", class, d.Decode.ID, want)
		}
		d.Reservation.Release()
	}
	r.busy(2, 0, 8) // now 1 is the better one for all but those who look at load only
	for class, want := range map[string]uint64{"": 1, "load only": 2, "heavy": 1} {
		d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains, Class: class})
		if d.Decode.ID != want {
			t.Errorf("class %q: worker %d, want %d", class, d.Decode.ID, want)
		}
		d.Reservation.Release()
	}
	o.Model = pick.Congestion
	r.picker.SetOptions(o)
	if e := r.picker.Explain(&pick.Request{Tokens: 160, Class: "heavy"}, start, r.random, &r.scratch); e.Temperature != 0 {
		t.Error("a class has an effect in the Congestion model")
	}
}

// A block in a store for all is a saving on every worker, so it draws a request to
// nobody; what is nearer does.
func TestSharedStore(t *testing.T) {
	contents, chains := promptOf(1, 10)
	for _, tc := range []struct {
		name   string
		change func(*pick.Options)
	}{
		{"congestion", func(o *pick.Options) { o.Model = pick.Congestion }},
		{"dynamo", func(o *pick.Options) { o.Model, o.Dynamo.SharedCache = pick.Dynamo, true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 0, workers(1, 4, fleet.Aggregated)...)
			o := pick.DefaultOptions()
			tc.change(&o)
			r.picker.SetOptions(o)
			r.hold(t, 1, contents, index.Depth{External: 10})
			taken := map[uint64]int{}
			for range 400 {
				d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains})
				if d.Matched != 10 || d.Best != 10 {
					t.Fatalf("matched %d, best %d; every worker can read all 10", d.Matched, d.Best)
				}
				taken[d.Decode.ID]++
				d.Reservation.Release()
			}
			for id := range uint64(4) {
				if n := taken[id+1]; n < 60 || n > 140 {
					t.Errorf("worker %d was taken %d of 400 times, want about 100", id+1, n)
				}
			}
			r.hold(t, 3, contents, index.Depth{Device: 2})
			if d := r.mustPick(t, pick.Request{Tokens: 160, Chains: chains}); d.Decode.ID != 3 || d.Matched != 10 {
				t.Errorf("worker %d, matched %d; 3 has some of it nearer", d.Decode.ID, d.Matched)
			}
		})
	}
}

// Requests for an adapter go where it is loaded, unless much waits there; a worker
// that would have to drop another one comes last.
func TestAdapters(t *testing.T) {
	for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
		r := newRig(t, 0, workers(1, 4, fleet.Aggregated)...)
		o := pick.DefaultOptions()
		o.Model = m
		r.picker.SetOptions(o)
		engines := load.NewEngines()
		engines.Feed(r.load)
		engines.Retain(r.picker.Fleet())
		say := func(id uint64, loaded, waiting []string) {
			engines.Scraped(fleet.Key{ID: id}, load.Scraped{At: start, Adapters: loaded, WaitingAdapters: waiting, MaxAdapters: 2})
		}
		say(1, []string{"x", "y"}, nil)
		say(2, []string{"a"}, nil)
		say(3, []string{}, []string{"a"})
		req := pick.Request{Tokens: 160, Adapter: "a"}
		var order []uint64
		for len(order) < 4 {
			d := r.mustPick(t, req)
			order = append(order, d.Decode.ID)
			d.Reservation.Release()
			r.busy(d.Decode.ID, 100_000, 0)
		}
		if want := []uint64{2, 3, 4, 1}; !slices.Equal(order, want) { // 4 says nothing
			t.Errorf("%v: taken in the order %v, want %v", m, order, want)
		}
	}
}

// A worker that says itself that it is full is over the bound, whatever is booked.
func TestBoundByTheEnginesWord(t *testing.T) {
	r := newRig(t, 0, workers(1, 2, fleet.Aggregated)...)
	o := pick.DefaultOptions()
	o.MaxBlocksShare = 0.9
	r.picker.SetOptions(o)
	engines := load.NewEngines()
	engines.Feed(r.load)
	engines.Retain(r.picker.Fleet())
	engines.Scraped(fleet.Key{ID: 1}, load.Scraped{At: start, KVUse: 0.95, KVBlocks: 1000, Waiting: -1, Running: -1})
	r.busy(2, 5000, 100)
	if d := r.mustPick(t, pick.Request{Tokens: 160}); d.Decode.ID != 2 {
		t.Error("a full worker was taken")
	}
	engines.Scraped(fleet.Key{ID: 2}, load.Scraped{At: start, KVUse: 0.5, KVBlocks: 100, Waiting: -1, Running: -1})
	if _, err := r.pick(pick.Request{Tokens: 160}); !errors.Is(err, pick.ErrBusy) {
		t.Errorf("worker 2 has 100 of its 100 blocks booked: %v, want %v", err, pick.ErrBusy)
	}
	// What was said long ago stops nothing.
	if _, err := r.picker.Pick(&pick.Request{Tokens: 160}, start.Add(time.Minute), r.random, &r.scratch); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// With a temperature, one worker to avoid makes no difference among the others, and is
// not drawn.
func TestTemperatureAndAvoid(t *testing.T) {
	contents, chains := promptOf(1, 20)
	share := func(avoid []netip.AddrPort) (holder, avoided float64) {
		r := newRig(t, 0, workers(1, 4, fleet.Aggregated)...)
		o := pick.DefaultOptions()
		o.Model, o.Dynamo.Temperature = pick.Dynamo, 0.2
		r.picker.SetOptions(o)
		r.hold(t, 2, contents, index.Depth{Device: 20})
		const n = 4000
		for range n {
			d := r.mustPick(t, pick.Request{Tokens: 320, Chains: chains, Avoid: avoid})
			switch d.Decode.ID {
			case 2:
				holder += 1. / n
			case 4:
				avoided += 1. / n
			}
			d.Reservation.Release()
		}
		return holder, avoided
	}
	before, _ := share(nil)
	holder, avoided := share([]netip.AddrPort{worker(4, 0).Endpoint})
	if avoided != 0 || holder < before {
		t.Errorf("the holder has %.2f with a worker to avoid, %.2f without; the avoided one has %.2f", holder, before, avoided)
	}
}

// How busy the pool is does not depend on who asks: requests without a prompt and
// those for a subset see the same.
func TestRhoIsThePools(t *testing.T) {
	for name, req := range map[string]pick.Request{
		"prompts":          {Tokens: 160},
		"lists of models":  {PromptLess: true},
		"a subset":         {Tokens: 160, Subset: in("10.0.0.1", "10.0.0.3")},
		"another prompt's": {Tokens: 16_000},
	} {
		r := newRig(t, 0, append(workers(1, 2, fleet.Prefill), workers(3, 6, fleet.Decode)...)...)
		r.busy(1, 100, 0) // one of the two that compute prompts
		for s := range 200 {
			d, err := r.picker.Pick(&req, start.Add(time.Duration(s)*10*time.Second), r.random, &r.scratch)
			if err != nil {
				t.Fatal(err)
			}
			d.Reservation.Release()
		}
		if rho := r.load.Rho(); rho < 0.49 || rho > 0.51 {
			t.Errorf("%s: rho %.2f, want 0.5", name, rho)
		}
	}
}
