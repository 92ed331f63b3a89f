package index_test

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// at names the worker, rank 0 of id 1 unless said, and tier of an event.
type at struct {
	rank uint32
	tier kvevent.Tier
}

func (a at) event(kind kvevent.Kind) kvevent.Event {
	return kvevent.Event{WorkerID: 1, Rank: a.rank, Tier: a.tier, Kind: kind}
}

// root stores blocks from a prompt's start: pairs of engine hash and content.
func (a at) root(pairs ...uint64) kvevent.Event {
	ev := a.event(kvevent.Stored)
	for i := 0; i < len(pairs); i += 2 {
		ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(pairs[i]), Hash: block.Hash(pairs[i+1])})
	}
	return ev
}

// after stores blocks that follow the block with an engine hash.
func (a at) after(parent uint64, pairs ...uint64) kvevent.Event {
	ev := a.root(pairs...)
	ev.HasParent, ev.Parent = true, kvevent.EngineHash(parent)
	return ev
}

func (a at) gone(engines ...kvevent.EngineHash) kvevent.Event {
	ev := a.event(kvevent.Removed)
	ev.Gone = engines
	return ev
}

func (a at) cleared(all bool) kvevent.Event {
	ev := a.event(kvevent.Cleared)
	ev.AllRanks = all
	return ev
}

// prompt is the prefix chains of a prompt with these block contents.
func prompt(contents ...block.Hash) []block.Chain { return block.AppendChains(nil, contents) }

func device(n int) index.Depth { return index.Depth{Device: n} }

func TestRules(t *testing.T) {
	var dev at
	host, disk, external := at{tier: kvevent.Host}, at{tier: kvevent.Disk}, at{tier: kvevent.External}
	rank1 := at{rank: 1}
	p12, p123 := prompt(12, 22), prompt(12, 22, 32)

	type events = []kvevent.Event
	for _, tc := range []struct {
		name   string
		events events
		prompt []block.Chain
		want   index.Depth // of rank 0
		rank1  index.Depth
		stats  index.Stats // Workers aside
	}{
		{"nothing stored", nil, p12, device(0), device(0), index.Stats{}},
		{"stored from the root", events{dev.root(1, 12, 2, 22)}, p123, device(2), device(0), index.Stats{Entries: 2, Stored: 2}},
		{"stored after a parent", events{dev.root(1, 12), dev.after(1, 2, 22, 3, 32)}, p123, device(3), device(0), index.Stats{Entries: 3, Stored: 3}},
		{"prompt shorter than what is held", events{dev.root(1, 12, 2, 22)}, prompt(12), device(1), device(0), index.Stats{Entries: 2, Stored: 2}},
		{"same content at another place is no match", events{dev.root(1, 12, 2, 22)}, prompt(22), device(0), device(0), index.Stats{Entries: 2, Stored: 2}},
		{"empty prompt", events{dev.root(1, 12)}, nil, device(0), device(0), index.Stats{Entries: 1, Stored: 1}},
		{"unknown parent: skipped whole", events{dev.after(9, 2, 22, 3, 32)}, p123, device(0), device(0), index.Stats{UnknownParents: 1}},
		{"unknown parent: its children are skipped too", events{dev.after(9, 2, 22), dev.after(2, 3, 32)}, p123, device(0), device(0), index.Stats{UnknownParents: 2}},
		{"parent of another rank is unknown", events{dev.root(1, 12), rank1.after(1, 2, 22)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 1, UnknownParents: 1}},
		{"engine hash 0 is a hash like others", events{dev.root(0, 12), dev.after(0, 2, 22)}, p12, device(2), device(0), index.Stats{Entries: 2, Stored: 2}},
		{"stored without blocks", events{dev.root(), dev.after(9)}, p12, device(0), device(0), index.Stats{}},
		{"duplicate", events{dev.root(1, 12), dev.root(1, 12)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 2, Duplicates: 1}},
		{"duplicate: one removal ends it", events{dev.root(1, 12), dev.root(1, 12), dev.gone(1)}, p12, device(0), device(0), index.Stats{Stored: 2, Duplicates: 1, Removed: 1}},
		{"replaced: old content gone on every tier", events{dev.root(1, 12), host.root(1, 12), dev.root(1, 99)}, p12, device(0), device(0), index.Stats{Entries: 1, Stored: 3, Replaced: 1}},
		{"replaced: new content found", events{dev.root(1, 99), dev.root(1, 12)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 2, Replaced: 1}},
		{"two engine hashes, same content: one entry", events{dev.root(1, 12), dev.root(5, 12)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 2}},
		{"two engine hashes: one removal leaves it", events{dev.root(1, 12), dev.root(5, 12), dev.gone(1)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 2, Removed: 1}},
		{"two engine hashes: both removed", events{dev.root(1, 12), dev.root(5, 12), dev.gone(5, 1)}, p12, device(0), device(0), index.Stats{Stored: 2, Removed: 2}},
		{"block after itself, unknown: skipped", events{dev.after(1, 1, 12)}, p12, device(0), device(0), index.Stats{UnknownParents: 1}},
		{"block after itself, known: replaces itself", events{dev.root(1, 12), dev.after(1, 1, 22)}, p12, device(0), device(0), index.Stats{Entries: 1, Stored: 2, Replaced: 1}},
		{"cycle of unknown parents: both skipped", events{dev.after(2, 1, 12), dev.after(1, 2, 22)}, p12, device(0), device(0), index.Stats{UnknownParents: 2}},
		{"cycle: a block comes to follow its own successor", events{dev.root(1, 12), dev.after(1, 2, 22), dev.after(2, 1, 32)}, p123, device(0), device(0), index.Stats{Entries: 2, Stored: 3, Replaced: 1}},
		{"cycle within one event", events{dev.root(1, 12, 2, 22, 1, 32)}, p123, device(0), device(0), index.Stats{Entries: 2, Stored: 3, Replaced: 1}},
		{"cycle: removals end it", events{dev.root(1, 12), dev.after(1, 2, 22), dev.after(2, 1, 32), dev.gone(1, 2)}, p123, device(0), device(0), index.Stats{Stored: 3, Removed: 2, Replaced: 1}},
		{"three engine hashes, same content: two removals leave it", events{dev.root(1, 12), dev.root(5, 12), dev.root(6, 12), dev.gone(6, 1)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 3, Removed: 2}},
		{"two engine hashes: each tier counts its own", events{dev.root(1, 12), dev.root(5, 12), host.root(1, 12), dev.gone(1, 5)}, p12, index.Depth{Host: 1}, device(0), index.Stats{Entries: 1, Stored: 3, Removed: 2}},
		{"removed", events{dev.root(1, 12, 2, 22), dev.gone(2)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 2, Removed: 1}},
		{"removed in the middle: a hole ends the match", events{dev.root(1, 12, 2, 22, 3, 32), dev.gone(2)}, p123, device(1), device(0), index.Stats{Entries: 2, Stored: 3, Removed: 1}},
		{"hole filled again: the rest counts again", events{dev.root(1, 12, 2, 22, 3, 32), dev.gone(2), dev.after(1, 2, 22)}, p123, device(3), device(0), index.Stats{Entries: 3, Stored: 4, Removed: 1}},
		{"removed parent cannot be followed", events{dev.root(1, 12), dev.gone(1), dev.after(1, 2, 22)}, p12, device(0), device(0), index.Stats{Stored: 1, Removed: 1, UnknownParents: 1}},
		{"removal before the store", events{dev.gone(1), dev.root(1, 12)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 1, UnknownRemovals: 1}},
		{"unknown removal: the rest is applied", events{dev.root(1, 12, 2, 22), dev.gone(8, 2)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 2, Removed: 1, UnknownRemovals: 1}},
		{"removed twice in one event", events{dev.root(1, 12), dev.gone(1, 1)}, p12, device(0), device(0), index.Stats{Stored: 1, Removed: 1, UnknownRemovals: 1}},
		{"removal on a tier that does not hold it", events{dev.root(1, 12), host.gone(1)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 1, UnknownRemovals: 1}},
		{"removal of another rank's block", events{dev.root(1, 12), rank1.gone(1)}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 1, UnknownRemovals: 1}},
		{"removal of nothing", events{dev.root(1, 12), dev.gone()}, p12, device(1), device(0), index.Stats{Entries: 1, Stored: 1}},
		{"cleared, this rank only", events{dev.root(1, 12), rank1.root(1, 12), dev.cleared(false)}, p12, device(0), device(1), index.Stats{Entries: 1, Stored: 2, Cleared: 1}},
		{"cleared, all ranks", events{dev.root(1, 12), rank1.root(1, 12), rank1.cleared(true)}, p12, device(0), device(0), index.Stats{Stored: 2, Cleared: 1}},
		{"cleared on all tiers", events{dev.root(1, 12), host.root(1, 12), disk.cleared(false)}, p12, device(0), device(0), index.Stats{Stored: 2, Cleared: 1}},
		{"cleared forgets second engine hashes", events{dev.root(1, 12), dev.root(5, 12), dev.cleared(false), dev.root(1, 12), dev.gone(1)}, p12, device(0), device(0), index.Stats{Stored: 3, Removed: 1, Cleared: 1}},
		{"host continues the device", events{dev.root(1, 12), host.after(1, 2, 22)}, p123, index.Depth{Device: 1, Host: 1}, device(0), index.Stats{Entries: 2, Stored: 2}},
		{"host alone counts from the start", events{host.root(1, 12, 2, 22)}, p123, index.Depth{Host: 2}, device(0), index.Stats{Entries: 2, Stored: 2}},
		{"held on both tiers counts once", events{dev.root(1, 12, 2, 22), host.root(1, 12, 2, 22)}, p123, device(2), device(0), index.Stats{Entries: 4, Stored: 4}},
		{"offloaded: device copy gone, host copy left", events{dev.root(1, 12, 2, 22), host.root(1, 12, 2, 22), dev.gone(2)}, p123, index.Depth{Device: 1, Host: 1}, device(0), index.Stats{Entries: 3, Stored: 4, Removed: 1}},
		{"host cannot reach past a hole", events{dev.root(1, 12, 2, 22), host.after(2, 3, 32), dev.gone(2)}, p123, device(1), device(0), index.Stats{Entries: 2, Stored: 3, Removed: 1}},
		{"device does not continue the host", events{host.root(1, 12), dev.after(1, 2, 22)}, p123, index.Depth{Host: 1}, device(0), index.Stats{Entries: 2, Stored: 2}},
		{"four tiers in a row", events{dev.root(1, 12), host.after(1, 2, 22), disk.after(2, 3, 32), external.after(3, 4, 42)}, prompt(12, 22, 32, 42, 52), index.Depth{Device: 1, Host: 1, Disk: 1, External: 1}, device(0), index.Stats{Entries: 4, Stored: 4}},
		{"disk does not continue what host left out", events{dev.root(1, 12), disk.after(1, 2, 22), host.after(2, 3, 32)}, p123, index.Depth{Device: 1, Disk: 1}, device(0), index.Stats{Entries: 3, Stored: 3}},
		{"ranks are apart", events{dev.root(1, 12, 2, 22), rank1.root(1, 12)}, p12, device(2), device(1), index.Stats{Entries: 3, Stored: 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := index.New()
			slots := [2]index.Slot{}
			for rank := range slots {
				slot, err := x.Register(fleet.Key{ID: 1, Rank: uint32(rank)})
				if err != nil {
					t.Fatal(err)
				}
				slots[rank] = slot
			}
			for i := range tc.events {
				if err := x.Apply(&tc.events[i]); err != nil {
					t.Fatal(err)
				}
			}
			var m index.Match
			x.Match(tc.prompt, &m)
			if got := m.Depth(slots[0]); got != tc.want {
				t.Errorf("rank 0 holds %+v, want %+v", got, tc.want)
			}
			if got := m.Depth(slots[1]); got != tc.rank1 {
				t.Errorf("rank 1 holds %+v, want %+v", got, tc.rank1)
			}
			tc.stats.Workers = 2
			if got := x.Stats(); got != tc.stats {
				t.Errorf("Stats = %+v, want %+v", got, tc.stats)
			}
		})
	}
}

// A Match is reused from request to request: nothing of the last answer may
// show in the next, on any tier.
func TestMatchForgetsTheLastLookup(t *testing.T) {
	x := index.New()
	for _, ev := range []kvevent.Event{
		at{}.root(1, 12), at{tier: kvevent.Host}.after(1, 2, 22),
		at{tier: kvevent.Disk}.after(2, 3, 32), at{tier: kvevent.External}.after(3, 4, 42),
	} {
		if err := x.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	slot, _ := x.Lookup(fleet.Key{ID: 1})
	var m index.Match
	for range 2 {
		x.Match(prompt(12, 22, 32, 42), &m)
		if got, want := m.Depth(slot), (index.Depth{Device: 1, Host: 1, Disk: 1, External: 1}); got != want {
			t.Fatalf("long prompt: %+v, want %+v", got, want)
		}
		x.Match(prompt(12, 22), &m)
		if got, want := m.Depth(slot), (index.Depth{Device: 1, Host: 1}); got != want {
			t.Fatalf("short prompt: %+v, want %+v", got, want)
		}
		x.Match(nil, &m)
		if got := m.Depth(slot); got != (index.Depth{}) {
			t.Fatalf("empty prompt: %+v", got)
		}
	}
	x.Drop(fleet.Key{ID: 1})
	x.Match(prompt(12, 22, 32, 42), &m)
	if got := m.Depth(slot); got != (index.Depth{}) {
		t.Errorf("dropped worker: %+v", got)
	}
	if got := m.Depth(index.MaxWorkers); got != (index.Depth{}) {
		t.Errorf("slot out of range: %+v", got)
	}
}

func TestApplyRefusesAnUnknownTier(t *testing.T) {
	x := index.New()
	ev := kvevent.Event{WorkerID: 1, ID: 1, Kind: kvevent.Stored, Tier: kvevent.NumTiers, Blocks: []kvevent.Block{{Engine: 1, Hash: 1}}}
	if err := x.Apply(&ev); err != index.ErrTier {
		t.Errorf("Apply = %v, want ErrTier", err)
	}
	if s := x.Stats(); s.Workers != 0 || s.Entries != 0 {
		t.Errorf("it left %+v behind", s)
	}
}
