package vllm

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// The workload of the measured peers: blocks of 16 tokens, 16 blocks per stored
// event, 4 events per message, each message the next 64 blocks of a prompt.
const (
	benchSize   = 16
	benchBlocks = 16
	benchEvents = 4
)

// benchMessages returns the messages that store prompts of 128 blocks.
func benchMessages(b *testing.B, form Form, seed uint64, messages int, vocabulary uint32) [][]byte {
	b.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var all [][]byte
	var parent kvevent.EngineHash
	for i := range messages {
		if i%2 == 0 {
			parent = 0
		}
		var events []Event
		for range benchEvents {
			e := Event{Kind: kvevent.Stored, BlockSize: benchSize, Medium: "GPU", Parent: parent, HasParent: parent != 0}
			for range benchBlocks {
				parent = kvevent.EngineHash(rng.Uint64() | 1)
				e.Hashes = append(e.Hashes, parent)
			}
			for range benchBlocks * benchSize {
				e.Tokens = append(e.Tokens, rng.Uint32N(vocabulary))
			}
			events = append(events, e)
		}
		msg, err := AppendBatch(nil, form, Batch{Time: 1.5}, events)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, msg)
	}
	return all
}

// BenchmarkDecode is one goroutine's decoding and hashing. The vocabulary decides
// how long token ids are: below 65,536 all alike, above it a mix.
func BenchmarkDecode(b *testing.B) {
	for _, vocabulary := range []uint32{32_000, 128_000, 200_000} {
		for form, name := range map[Form]string{ArrayForm: "array", MapForm: "map"} {
			b.Run(fmt.Sprintf("%s/vocabulary=%d", name, vocabulary), func(b *testing.B) {
				all := benchMessages(b, form, 1, 256, vocabulary)
				d, err := NewDecoder(Config{BlockSize: benchSize})
				if err != nil {
					b.Fatal(err)
				}
				blocks, i := 0, 0
				b.ReportAllocs()
				b.SetBytes(int64(len(all[0])))
				for b.Loop() {
					if _, err := d.Decode(all[i%len(all)], func(e *kvevent.Event) { blocks += len(e.Blocks) }); err != nil {
						b.Fatal(err)
					}
					i++
				}
				report(b, blocks)
			})
		}
	}
}

func report(b *testing.B, blocks int) {
	b.Helper()
	b.ReportMetric(float64(blocks)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(blocks), "ns/block")
}

// BenchmarkBytesToIndex fills an index from bytes, by two goroutines with half of 64
// workers each: 1.02 M blocks a round.
func BenchmarkBytesToIndex(b *testing.B) {
	const workers, each = 64, 250
	var all [workers][][]byte
	for w := range all {
		all[w] = benchMessages(b, MapForm, uint64(w), each, 128_000)
	}
	for b.Loop() {
		b.StopTimer()
		x := index.New()
		b.StartTimer()
		var wg sync.WaitGroup
		for g := range 2 {
			wg.Go(func() {
				for w := g; w < workers; w += 2 {
					fill(b, x, uint64(w)+1, all[w])
				}
			})
		}
		wg.Wait()
		if got := x.Stats().Entries; got != workers*each*benchEvents*benchBlocks {
			b.Fatalf("%d entries", got)
		}
	}
	report(b, b.N*workers*each*benchEvents*benchBlocks)
}

func fill(b *testing.B, x *index.Index, id uint64, messages [][]byte) {
	b.Helper()
	d, err := NewDecoder(Config{WorkerID: id, BlockSize: benchSize})
	if err != nil {
		b.Error(err)
		return
	}
	for _, msg := range messages {
		if _, err := d.Decode(msg, func(e *kvevent.Event) {
			if err := x.Apply(e); err != nil {
				b.Error(err)
			}
		}); err != nil {
			b.Error(err)
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	e := Event{
		Kind: kvevent.Stored, Hashes: []kvevent.EngineHash{1, 2}, Tokens: make([]uint32, 8), BlockSize: 4, Medium: "CPU",
		Adapter: "my-adapter", Salt: "tenant-a", Media: []kvevent.Media{{Block: 1, Hash: 42}, {Block: 1, Hash: 7}}, HasGroup: true, Spec: "full_attention",
	}
	msg, err := AppendBatch(nil, MapForm, Batch{}, []Event{e, {Kind: kvevent.Removed, Hashes: e.Hashes, Medium: "FS"}, {Kind: kvevent.Cleared}})
	if err != nil {
		t.Fatal(err)
	}
	d, n := newDecoder(t, 4), 0
	if allocs := testing.AllocsPerRun(100, func() {
		if _, err := d.Decode(msg, func(e *kvevent.Event) { n += len(e.Blocks) + len(e.Media) }); err != nil {
			t.Error(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations per message", allocs)
	}
	if n != 101*4 {
		t.Errorf("%d blocks and media", n)
	}
}
