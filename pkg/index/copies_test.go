package index_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// each makes events ones of an engine, which tells of every copy.
func each(events ...kvevent.Event) []kvevent.Event {
	for i := range events {
		events[i].Copies = true
	}
	return events
}

func TestCopies(t *testing.T) {
	var dev at
	host := at{tier: kvevent.Host}
	one, gone := dev.root(1, 12), dev.gone(1)
	p := prompt(12, 22)

	type events = []kvevent.Event
	for _, tc := range []struct {
		name   string
		events events
		want   index.Depth
		stats  index.Stats // Workers aside
	}{
		{"stored thrice, removed twice: held", each(one, one, one, gone, gone), device(1), index.Stats{Entries: 1, Stored: 3, Duplicates: 2, Removed: 2}},
		{"stored thrice, removed thrice: gone", each(one, one, one, gone, gone, gone), device(0), index.Stats{Stored: 3, Duplicates: 2, Removed: 3}},
		{"two copies removed by one event", each(one, one, dev.gone(1, 1)), device(0), index.Stats{Stored: 2, Duplicates: 1, Removed: 2}},
		{"two copies stored by one event", each(dev.root(1, 12, 2, 22), dev.after(1, 2, 22, 2, 32), dev.gone(1)), device(0), index.Stats{Entries: 1, Stored: 4, Duplicates: 1, Replaced: 1, Removed: 1}},
		{"removed more often than stored", each(one, one, gone, gone, gone, gone), device(0), index.Stats{Stored: 2, Duplicates: 1, Removed: 2, UnknownRemovals: 2}},
		{"a removal too many is no debt", each(one, gone, gone, one), device(1), index.Stats{Entries: 1, Stored: 2, Removed: 1, UnknownRemovals: 1}},
		{"removed and stored again: one copy", each(one, one, gone, gone, one, gone), device(0), index.Stats{Stored: 3, Duplicates: 1, Removed: 3}},
		{"each tier counts its own", each(one, one, host.root(1, 12), gone, host.gone(1)), device(1), index.Stats{Entries: 1, Stored: 3, Duplicates: 1, Removed: 2}},
		{"copies on two tiers", each(one, one, host.root(1, 12), host.root(1, 12), gone, gone, host.gone(1)), index.Depth{Host: 1}, index.Stats{Entries: 1, Stored: 4, Duplicates: 2, Removed: 3}},
		{"copies on two tiers, all removed", each(one, one, host.root(1, 12), host.root(1, 12), gone, gone, host.gone(1, 1)), device(0), index.Stats{Stored: 4, Duplicates: 2, Removed: 4}},
		{"other content: counted anew", each(dev.root(1, 99), dev.root(1, 99), one, gone), device(0), index.Stats{Stored: 3, Duplicates: 1, Replaced: 1, Removed: 1}},
		{"other content, and back: counted anew", each(one, one, dev.root(1, 99), one, gone), device(0), index.Stats{Stored: 4, Duplicates: 1, Replaced: 2, Removed: 1}},
		{"other content on another tier: counted anew on all", each(one, one, host.root(1, 99), one, gone), device(0), index.Stats{Stored: 4, Duplicates: 1, Replaced: 2, Removed: 1}},
		{"a worker that counts itself: one removal ends it", events{one, one, one, gone}, device(0), index.Stats{Stored: 3, Duplicates: 2, Removed: 1}},
		{"its removal ends counted copies too", append(each(one, one, one), gone), device(0), index.Stats{Stored: 3, Duplicates: 2, Removed: 1}},
		{"and nothing of them is left", append(append(each(one, one, one), gone), each(one, gone)...), device(0), index.Stats{Stored: 4, Duplicates: 2, Removed: 2}},
		{"its removal leaves the copies of other tiers", append(append(each(one, one, host.root(1, 12), host.root(1, 12)), gone), each(host.gone(1))...), index.Depth{Host: 1}, index.Stats{Entries: 1, Stored: 4, Duplicates: 2, Removed: 2}},
		{"its store is a first copy, and no more", append(events{one, one}, each(gone)...), device(0), index.Stats{Stored: 2, Duplicates: 1, Removed: 1}},
		{"a copy after its store", append(events{one}, each(one, gone)...), device(1), index.Stats{Entries: 1, Stored: 2, Duplicates: 1, Removed: 1}},
		{"stored thrice", each(one, one, one), device(1), index.Stats{Entries: 1, Stored: 3, Duplicates: 2}},
		{"stored thrice on two tiers", each(one, one, one, host.root(1, 12), host.root(1, 12), host.root(1, 12)), device(1), index.Stats{Entries: 2, Stored: 6, Duplicates: 4}},
		{"cleared", each(one, one, one, dev.cleared(false), one, gone), device(0), index.Stats{Stored: 4, Duplicates: 2, Removed: 1, Cleared: 1}},
		{"two engine hashes, one with copies", each(one, one, dev.root(5, 12), dev.gone(5, 1)), device(1), index.Stats{Entries: 1, Stored: 3, Duplicates: 1, Removed: 2}},
		{"two engine hashes, all removed", each(one, one, dev.root(5, 12), dev.gone(1, 5, 1)), device(0), index.Stats{Stored: 3, Duplicates: 1, Removed: 3}},
		{"a parent with copies is still one", each(one, one, gone, dev.after(1, 2, 22)), device(2), index.Stats{Entries: 2, Stored: 3, Duplicates: 1, Removed: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := index.New()
			for i := range tc.events {
				mustApply(t, x, tc.events[i])
				checkBytes(t, x, index.DefaultBytes)
			}
			if got := depthOf(t, x, 1, p); got != tc.want {
				t.Errorf("holds %+v, want %+v", got, tc.want)
			}
			tc.stats.Workers = 1
			if got := x.Stats(); got != tc.stats {
				t.Errorf("Stats = %+v, want %+v", got, tc.stats)
			}
			// A snapshot goes on like what it is of.
			loaded := index.New()
			if err := loaded.Load(bytes.NewReader(snapshot(t, x))); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for _, ev := range each(gone, host.gone(1)) {
					mustApply(t, x, ev)
					mustApply(t, loaded, ev)
				}
				if got, want := depthOf(t, loaded, 1, p), depthOf(t, x, 1, p); got != want {
					t.Errorf("loaded, it holds %+v, want %+v", got, want)
				}
			}
		})
	}
}

// A drop, as after a restart, forgets copies; and so does eviction.
func TestCopiesGoWithTheirBlocks(t *testing.T) {
	one, gone := each(at{}.root(1, 12))[0], each(at{}.gone(1))[0]
	for name, forget := range map[string]func(*index.Index){
		"drop":  func(x *index.Index) { x.Drop(fleet.Key{ID: 1}) },
		"clear": func(x *index.Index) { x.Clear(fleet.Key{ID: 1}) },
		"evict": func(x *index.Index) {
			if !x.Evict(fleet.Key{ID: 1}, 1) {
				t.Error("nothing to evict")
			}
		},
		// After eviction, one that comes behind a block that is not known any more.
		"disown": func(x *index.Index) {
			var deeper []uint64
			for i := range uint64(400) {
				deeper = append(deeper, 2+i, 22+i)
			}
			mustApply(t, x, at{}.after(1, deeper...))
			if !x.Evict(fleet.Key{ID: 1}, 1) {
				t.Error("nothing to evict")
			}
			if got := depthOf(t, x, 1, prompt(12)); got != device(1) {
				t.Errorf("%+v", got)
			}
			mustApply(t, x, at{}.after(401, 1, 99))
			if got := depthOf(t, x, 1, prompt(12)); got != device(0) {
				t.Errorf("%+v", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := index.New()
			mustRegister(t, x, 1)
			empty := x.Memory().Bytes
			for range 3 {
				mustApply(t, x, one)
			}
			forget(x)
			if c := x.Copies(fleet.Key{ID: 1}); len(c) != 0 {
				t.Errorf("copies %v", c)
			}
			mustApply(t, x, one)
			mustApply(t, x, gone)
			if got := depthOf(t, x, 1, prompt(12)); got != device(0) {
				t.Errorf("%+v", got)
			}
			x.Clear(fleet.Key{ID: 1})
			checkBytes(t, x, index.DefaultBytes)
			if got := x.Memory().Bytes; got-empty > 1<<20 {
				t.Errorf("%d bytes, %d at first", got, empty)
			}
		})
	}
}

// Counts have an end; where it is reached a block goes too early, not too late.
func TestMostCopies(t *testing.T) {
	for tier, most := range []int{1 << 14, 1 << 6, 1 << 6, 1 << 6} {
		a := at{tier: kvevent.Tier(tier)}
		x := index.New()
		other := each(at{tier: (a.tier + 1) % kvevent.NumTiers}.root(1, 12))[0]
		mustApply(t, x, other) // on another tier, untouched
		for range most + 10 {
			mustApply(t, x, each(a.root(1, 12))[0])
		}
		for i := range most {
			if x.Held(fleet.Key{ID: 1})[tier] != 1 {
				t.Fatalf("tier %v: gone after %d removals", a.tier, i)
			}
			mustApply(t, x, each(a.gone(1))[0])
		}
		if h := x.Held(fleet.Key{ID: 1}); h[tier] != 0 || h[other.Tier] != 1 {
			t.Errorf("tier %v: %v held", a.tier, h)
		}
		mustApply(t, x, each(a.gone(1))[0])
		if s := x.Stats(); s.Removed != uint64(most) || s.UnknownRemovals != 1 {
			t.Errorf("tier %v: %+v", a.tier, s)
		}
	}
}

// Many copies are within the bound, and their memory comes back.
func TestCopiesAreBounded(t *testing.T) {
	contents, _ := counted(4000)
	ev := storedAll(1, kvevent.Device, contents)
	ev.Copies = true
	gone := kvevent.Event{WorkerID: 1, Kind: kvevent.Removed, Copies: true}
	for _, b := range ev.Blocks {
		gone.Gone = append(gone.Gone, b.Engine)
	}
	slices.Reverse(gone.Gone)

	x := index.New()
	mustApply(t, x, ev)
	once := x.Memory().Bytes
	mustApply(t, x, ev)
	checkBytes(t, x, index.DefaultBytes)
	if more := x.Memory().Bytes - once; more < 4000*12 {
		t.Errorf("%d bytes more for 4,000 copies", more)
	}
	mustApply(t, x, gone)
	checkBytes(t, x, index.DefaultBytes)
	if got := x.Memory().Bytes; got != once {
		t.Errorf("%d bytes after the copies went, %d before they came", got, once)
	}

	mustApply(t, x, ev)
	if !x.Evict(fleet.Key{ID: 1}, 4000) || x.Memory().Bytes > once {
		t.Errorf("%d bytes after all was evicted, %d for all", x.Memory().Bytes, once)
	}
	evicted := x.Memory().Bytes
	x.Clear(fleet.Key{ID: 1})
	if got := x.Memory().Bytes; got != evicted {
		t.Errorf("%d bytes after all was evicted, %d after it was cleared too", evicted, got)
	}
}

// A copy that there is no memory for is not counted, which is told: the block goes
// with the first removal, and what the engine stores behind it then is not taken
// for what was there.
func TestNoRoomForCopies(t *testing.T) {
	contents, _ := counted(4000)
	ev := storedAll(1, kvevent.Device, contents)
	ev.Copies = true
	x := index.New()
	mustApply(t, x, ev)
	x.SqueezeBulk()
	for range 2 {
		mustApply(t, x, each(at{}.root(1, 1))[0])
	}
	k := fleet.Key{ID: 1}
	if m := x.Memory(); m.NoRoom != 2 || m.Evicted != 0 || len(x.Copies(k)) != 0 {
		t.Fatalf("%+v, copies %v", m, x.Copies(k))
	}
	checkBytes(t, x, x.Memory().Max)
	x.Squeeze(1 << 20)
	mustApply(t, x, each(at{}.gone(1))[0])
	if got := x.Held(k)[kvevent.Device]; got != 3999 {
		t.Fatalf("%d blocks are left", got)
	}
	mustApply(t, x, each(at{}.after(1, 7, 99))[0])
	if got := x.Held(k)[kvevent.Device]; got != 3998 {
		t.Errorf("%d blocks are left", got)
	}
}

// Copies that no block of a snapshot can have are damage, whoever sealed it.
func TestLoadRefusesCopiesOfNothing(t *testing.T) {
	x := index.New()
	for _, ev := range each(at{}.root(1, 12), at{}.root(1, 12)) {
		mustApply(t, x, ev)
	}
	good := snapshot(t, x)
	const tail = 1 + 12 + 8 // the end and the checksum
	record := good[len(good)-tail-(1+2+8+4) : len(good)-tail]
	changed := func(change func(r []byte) []byte) []byte {
		bad := slices.Clone(good[:len(good)-tail-len(record)])
		bad = append(bad, change(slices.Clone(record))...)
		return index.Seal(append(bad, good[len(good)-tail:]...))
	}
	if err := index.New().Load(bytes.NewReader(changed(func(r []byte) []byte { return r }))); err != nil {
		t.Fatalf("unchanged: %v", err)
	}
	for name, change := range map[string]func(r []byte) []byte{
		"of another engine hash":  func(r []byte) []byte { r[3] = 2; return r },
		"on another tier":         func(r []byte) []byte { r[12] = 1 << 6; return r },
		"on another tier, too":    func(r []byte) []byte { r[14] = 1; return r },
		"none":                    func(r []byte) []byte { r[11] = 0; return r },
		"of one block, and again": func(r []byte) []byte { return append(r, r...) },
		"more than there are":     func(r []byte) []byte { r[1] = 2; return r },
	} {
		if err := index.New().Load(bytes.NewReader(changed(change))); !errors.Is(err, index.ErrSnapshot) {
			t.Errorf("copies %s: %v, want ErrSnapshot", name, err)
		}
	}
}
