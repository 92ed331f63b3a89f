package pick_test

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
)

func at(w fleet.Worker, l fleet.Location) fleet.Worker {
	w.Site = fleet.SiteOf(l)
	return w
}

// someSpeeds are those of a cluster, in bytes per second.
var someSpeeds = [fleet.NumDistances]float64{
	fleet.SameHost: 100e9, fleet.SameFabric: 100e9, fleet.SameRack: 25e9, fleet.SameZone: 12.5e9, fleet.Elsewhere: 2.5e9,
}

// All else being equal a pair is as near as can be.
func TestNearestPair(t *testing.T) {
	far := fleet.Location{Zone: "z2", Rack: "r9", Host: "h9", Fabric: "f9"}
	for _, tc := range []struct {
		name string
		near fleet.Location // of decode worker 2; worker 3 is at far
	}{
		{"host", fleet.Location{Host: "h1"}},
		{"fabric", fleet.Location{Fabric: "f1", Host: "h2"}},
		{"rack", fleet.Location{Rack: "r1", Host: "h2"}},
		{"zone", fleet.Location{Zone: "z1", Rack: "r2"}},
	} {
		for _, order := range []pick.Order{pick.Joint, pick.DecodeFirst} {
			t.Run(tc.name, func(t *testing.T) {
				r := newRig(t, 0,
					at(worker(1, fleet.Prefill), fleet.Location{Zone: "z1", Rack: "r1", Host: "h1", Fabric: "f1"}),
					at(worker(2, fleet.Decode), tc.near), at(worker(3, fleet.Decode), far),
					at(worker(4, fleet.Prefill), far))
				o := pick.DefaultOptions()
				o.Split.Order = order
				r.picker.SetOptions(o)
				for range 50 {
					d := r.mustPick(t, pick.Request{Tokens: 160})
					if d.Prefill.ID == 1 != (d.Decode.ID == 2) {
						t.Fatalf("pair %d and %d", d.Prefill.ID, d.Decode.ID)
					}
					d.Reservation.Release()
				}
			})
		}
	}
}

// Workers whose connectors differ are never a pair; one that is not known goes with
// any.
func TestConnectors(t *testing.T) {
	nixl, mooncake := fleet.Location{Connector: "nixl"}, fleet.Location{Connector: "mooncake"}
	r := newRig(t, 0, at(worker(1, fleet.Prefill), nixl), at(worker(2, fleet.Prefill), mooncake), worker(3, fleet.Prefill),
		at(worker(4, fleet.Decode), nixl), at(worker(5, fleet.Decode), mooncake), worker(6, fleet.Decode))
	fits := map[[2]uint64]bool{{1, 4}: true, {2, 5}: true, {3, 4}: true, {3, 5}: true, {3, 6}: true, {1, 6}: true, {2, 6}: true}
	seen := map[[2]uint64]bool{}
	for range 2000 {
		d := r.mustPick(t, pick.Request{Tokens: 160})
		p := [2]uint64{d.Prefill.ID, d.Decode.ID}
		if !fits[p] {
			t.Fatalf("pair %v", p)
		}
		seen[p] = true
	}
	if len(seen) != len(fits) {
		t.Errorf("pairs %v, want all of %v", seen, fits)
	}

	r = newRig(t, 0, at(worker(1, fleet.Prefill), nixl), at(worker(2, fleet.Decode), mooncake))
	if d := r.mustPick(t, pick.Request{Tokens: 160}); d.Mode != pick.NoPrefillReady || d.Prefill.ID != 2 {
		t.Errorf("%v with prefill on %d, want the decode worker alone", d.Mode, d.Prefill.ID)
	}
}

// A pair far apart is taken when what the far worker holds saves more time than the
// transfer takes.
func TestTransferCost(t *testing.T) {
	contents, chains := promptOf(1, 1000)
	for _, tc := range []struct {
		name  string
		bytes float64 // per prompt
		want  uint64  // prefill worker
	}{
		// 8,000 tokens are taken to take 0.8 s.
		{"a transfer of 0.4 s more", 1e9, 2},
		{"a transfer of 1.6 s more", 4e9, 1},
	} {
		for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
			t.Run(m.String()+"/"+tc.name, func(t *testing.T) {
				r := newRig(t, 0, at(worker(1, fleet.Prefill), fleet.Location{Host: "a"}), at(worker(2, fleet.Prefill), fleet.Location{Host: "b"}),
					at(worker(3, fleet.Decode), fleet.Location{Host: "a"}))
				o := pick.DefaultOptions()
				o.Model = m
				o.Transfer.BytesPerPrompt, o.Transfer.BytesPerSecond = tc.bytes, someSpeeds
				r.picker.SetOptions(o)
				r.hold(t, 2, contents, index.Depth{Device: 500})
				if d := r.mustPick(t, pick.Request{Tokens: 16_000, Chains: chains}); d.Prefill.ID != tc.want {
					t.Errorf("prefill on %d, want %d", d.Prefill.ID, tc.want)
				}
			})
		}
	}
}

// In decode-first order the least occupied decode worker is taken, however far; the
// joint order weighs both.
func TestOrders(t *testing.T) {
	for _, tc := range []struct {
		order pick.Order
		want  uint64 // decode worker
	}{{pick.Joint, 2}, {pick.DecodeFirst, 3}} {
		r := newRig(t, 0, at(worker(1, fleet.Prefill), fleet.Location{Host: "a"}),
			at(worker(2, fleet.Decode), fleet.Location{Host: "a"}), at(worker(3, fleet.Decode), fleet.Location{Host: "b"}))
		o := pick.DefaultOptions()
		o.Split.Order, o.Transfer.BytesPerPrompt, o.Transfer.BytesPerSecond = tc.order, 1e9, someSpeeds
		r.picker.SetOptions(o)
		r.busy(2, 0, 10) // some load, far less than the transfer
		if d := r.mustPick(t, pick.Request{Tokens: 160}); d.Decode.ID != tc.want {
			t.Errorf("order %d: decode on %d, want %d", tc.order, d.Decode.ID, tc.want)
		}
	}
}

// A decode worker that no prefill worker connects with is never half of a pair, in
// whatever way the pair is found.
func TestDecodeWorkersWithoutMate(t *testing.T) {
	nixl, mooncake := fleet.Location{Connector: "nixl"}, fleet.Location{Connector: "mooncake"}
	for _, order := range []pick.Order{pick.Joint, pick.DecodeFirst} {
		for _, temperature := range []float64{0, 1} {
			for _, session := range []string{"", "s"} {
				r := newRig(t, 0, at(worker(1, fleet.Prefill), nixl), at(worker(2, fleet.Decode), nixl), at(worker(3, fleet.Decode), mooncake))
				o := pick.DefaultOptions()
				o.Model, o.Dynamo.Temperature, o.Split.Order, o.Split.Mode = pick.Dynamo, temperature, order, pick.SplitRequired
				r.picker.SetOptions(o)
				r.busy(2, 0, 10) // the idle one has no mate
				for range 50 {
					if d := r.mustPick(t, pick.Request{Tokens: 160, Session: session}); d.Prefill.ID != 1 || d.Decode.ID != 2 {
						t.Fatalf("pair %d and %d", d.Prefill.ID, d.Decode.ID)
					}
				}
			}
		}
	}
}

// Speeds that are left out, or rise with the distance, are no reason to go far.
func TestOddSpeeds(t *testing.T) {
	for name, speeds := range map[string][fleet.NumDistances]float64{
		"only the nearest":  {fleet.SameHost: 400e9},
		"only the furthest": {fleet.Elsewhere: 1e9},
		"the wrong way":     {fleet.SameHost: 1e9, fleet.Elsewhere: 400e9},
	} {
		for _, order := range []pick.Order{pick.Joint, pick.DecodeFirst} {
			r := newRig(t, 0, at(worker(1, fleet.Prefill), fleet.Location{Host: "a"}), at(worker(2, fleet.Prefill), fleet.Location{Host: "b"}),
				at(worker(3, fleet.Decode), fleet.Location{Host: "a"}))
			o := pick.DefaultOptions()
			o.Split.Order, o.Transfer.BytesPerToken, o.Transfer.BytesPerPrompt, o.Transfer.BytesPerSecond = order, 131072, 1e8, speeds
			r.picker.SetOptions(o)
			for range 50 {
				d := r.mustPick(t, pick.Request{Tokens: 16_000})
				if d.Prefill.ID != 1 {
					t.Fatalf("%s: prefill on %d, far from the decode worker", name, d.Prefill.ID)
				}
				d.Reservation.Release()
			}
		}
	}
}
