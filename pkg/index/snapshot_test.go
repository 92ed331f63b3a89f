package index_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

func snapshot(t interface{ Fatal(...any) }, x *index.Index) []byte {
	var b bytes.Buffer
	if err := x.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is loaded equals what was written, and goes on like it: the same later
// events lead to the same answers.
func TestSnapshotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]uint64{2, 8, 100}).Draw(t, "workers"))
		steps := func(n int) {
			for range n {
				if err := p.step(); err != nil {
					t.Fatal(err)
				}
			}
		}
		steps(rapid.IntRange(0, 80).Draw(t, "steps"))
		loaded := index.New()
		if rapid.Bool().Draw(t, "registered before") {
			for _, k := range []uint64{1, 0} {
				if _, err := loaded.Register(fleet.Key{ID: k}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := loaded.Load(bytes.NewReader(snapshot(t, p.index))); err != nil {
			t.Fatal(err)
		}
		p.equal(t, loaded)
		// Both go on. Slots may differ, so answers are compared by worker.
		source := p.index
		for range 20 {
			ev := p.stored(kvevent.Device)
			if p.random.IntN(2) == 0 {
				ev = p.gone(kvevent.Tier(p.random.IntN(2)))
			}
			if err := errors.Join(source.Apply(ev), loaded.Apply(ev)); err != nil {
				t.Fatal(err)
			}
		}
		p.equal(t, loaded)
	})
}

// equal compares the index with another, by worker.
func (p *pair) equal(t *rapid.T, other *index.Index) {
	if err := other.Check(); err != nil {
		t.Fatal(err)
	}
	if got, want := other.Stats().Entries, p.index.Stats().Entries; got != want {
		t.Fatalf("%d entries, want %d", got, want)
	}
	for _, k := range p.index.Workers() {
		if got, want := other.Held(k), p.index.Held(k); got != want {
			t.Fatalf("worker %v holds %v, want %v", k, got, want)
		}
		if got, want := other.Copies(k), p.index.Copies(k); !maps.Equal(got, want) {
			t.Fatalf("worker %v has copies %v, want %v", k, got, want)
		}
		for tier := range kvevent.Tier(kvevent.NumTiers) {
			got, want := other.Chains(k, tier), p.index.Chains(k, tier)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("worker %v, tier %v: chains differ", k, tier)
			}
		}
	}
	var m index.Match
	for _, contents := range p.prompts[max(0, len(p.prompts)-20):] {
		chains := block.AppendChains(nil, contents)
		p.index.Match(chains, &p.match)
		other.Match(chains, &m)
		for _, k := range p.index.Workers() {
			a, _ := p.index.Lookup(k)
			b, _ := other.Lookup(k)
			if got, want := m.Depth(b), p.match.Depth(a); got != want {
				t.Fatalf("worker %v holds %+v, want %+v", k, got, want)
			}
		}
	}
}

// Any damage to any byte is refused, and nothing of it is loaded.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	from := index.New()
	for _, ev := range []kvevent.Event{
		at{}.root(1, 12, 2, 22, 3, 32), at{tier: kvevent.Host}.after(2, 3, 32, 4, 42),
		at{rank: 1}.root(1, 12, 7, 72), at{rank: 1}.root(9, 12), at{rank: 2}.root(),
	} {
		mustApply(t, from, ev)
	}
	good := snapshot(t, from)
	x := index.New() // as empty after every refusal as before
	refused := func(name string, data []byte) {
		t.Helper()
		if err := x.Load(bytes.NewReader(data)); !errors.Is(err, index.ErrSnapshot) {
			t.Errorf("%s: %v, want ErrSnapshot", name, err)
		}
		if s := x.Stats(); s.Workers != 0 || s.Entries != 0 {
			t.Errorf("%s: it left %+v behind", name, s)
		}
	}
	refused("nothing", nil)
	refused("more behind the end", append(slices.Clone(good), 0))
	for at := range good {
		refused("cut short", good[:at])
		for bit := range 8 {
			bad := slices.Clone(good)
			bad[at] ^= 1 << bit
			refused("a flipped bit", bad)
		}
		refused("a byte too few", slices.Delete(slices.Clone(good), at, at+1))
		refused("a byte too many", slices.Insert(slices.Clone(good), at, good[at]^1))
	}
	if err := x.Load(bytes.NewReader(good)); err != nil || x.Stats().Entries != from.Stats().Entries {
		t.Errorf("undamaged: %v, %+v", err, x.Stats())
	}
}

func TestLoadRefusals(t *testing.T) {
	full := index.New()
	mustApply(t, full, at{}.root(1, 12))
	data := snapshot(t, full)
	if err := full.Load(bytes.NewReader(data)); !errors.Is(err, index.ErrNotEmpty) {
		t.Errorf("into an index that holds something: %v", err)
	}
	if err := index.New().Load(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, index.ErrSnapshot) {
		t.Errorf("from a broken reader: %v", err)
	}
	crowded := index.New()
	for id := range uint64(index.MaxWorkers) {
		mustRegister(t, crowded, id+10)
	}
	if err := crowded.Load(bytes.NewReader(data)); !errors.Is(err, index.ErrFull) || crowded.Stats().Entries != 0 {
		t.Errorf("into a full index: %v", err)
	}
	if err := full.Snapshot(brokenWriter{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("to a broken writer: %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// A snapshot taken while events go on holds, of each worker, whole events: each
// event here stores a prompt of its own, and none may be there in part.
func TestSnapshotBesideWriters(t *testing.T) {
	const workers, rounds, length = 4, 150, 300
	x := index.New()
	prompts := make([][]block.Chain, rounds)
	contents := make([][]block.Hash, rounds)
	for i := range prompts {
		contents[i] = make([]block.Hash, length)
		for j := range contents[i] {
			contents[i][j] = block.Hash(i*length + j + 1)
		}
		prompts[i] = block.AppendChains(nil, contents[i])
	}
	var wg sync.WaitGroup
	for id := range uint64(workers) {
		wg.Go(func() {
			for i, p := range contents {
				ev := storedAll(id, kvevent.Device, p)
				for j := range ev.Blocks {
					ev.Blocks[j].Engine = kvevent.EngineHash(i*length + j)
				}
				if err := x.Apply(&ev); err != nil {
					t.Error(err)
				}
				if i%7 == 6 {
					x.Clear(fleet.Key{ID: id})
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		loaded := index.New()
		if err := loaded.Load(bytes.NewReader(snapshot(t, x))); err != nil {
			t.Fatal(err)
		}
		if err := loaded.Check(); err != nil {
			t.Fatal(err)
		}
		for _, k := range loaded.Workers() {
			if n := loaded.Held(k)[kvevent.Device]; n%length != 0 {
				t.Fatalf("worker %v has %d blocks: a part of an event", k, n)
			}
		}
	}
	if err := x.Check(); err != nil {
		t.Fatal(err)
	}
}

// Whatever is loaded, the index is sound afterwards, or empty.
func FuzzLoad(f *testing.F) {
	p := newPair(7, 3)
	for range 12 {
		if err := p.step(); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(snapshot(f, p.index), true, uint32(0))
	f.Add(snapshot(f, p.index), true, uint32(200<<10))
	f.Add(snapshot(f, index.New()), false, uint32(0))
	f.Fuzz(func(t *testing.T, data []byte, sealed bool, tiny uint32) {
		if sealed { // as if whoever damaged it had mended the checksum
			data = index.Seal(data)
		}
		x, bound := index.New(), int64(index.DefaultBytes)
		if tiny > 0 { // bytes it may take
			x, bound = index.NewTiny(int64(tiny % (1 << 20)))
		}
		empty := x.Memory().Bytes
		err := x.Load(bytes.NewReader(data))
		if tiny%(1<<20) > 50<<10 { // or not even an empty index fits
			checkBytes(t, x, bound)
		}
		if err != nil {
			if got := x.Memory().Bytes; got != empty {
				t.Fatalf("%v, and %d bytes instead of %d", err, got, empty)
			}
			if s := x.Stats(); s.Workers != 0 || s.Entries != 0 {
				t.Fatalf("%v, and %+v", err, s)
			}
			return
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		for _, k := range x.Workers() {
			for tier := range kvevent.Tier(kvevent.NumTiers) {
				if n := len(x.Chains(k, tier)); n != x.Held(k)[tier] {
					t.Fatalf("%d chains, %d held", n, x.Held(k)[tier])
				}
			}
			x.Drop(k)
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
