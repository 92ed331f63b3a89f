package load_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/load"
)

// chainsOf makes a prompt of n blocks of which the first shared are those of every
// prompt.
func chainsOf(id, n, shared int) []block.Chain {
	chains := make([]block.Chain, n)
	for i := range chains {
		chains[i] = block.Chain(i+1) * 0x9e3779b97f4a7c15
		if i >= shared {
			chains[i] ^= block.Chain(id+1) << 40
		}
	}
	return chains
}

// BenchmarkReserve books and releases while 64 workers have 4 requests each.
func BenchmarkReserve(b *testing.B) {
	const workers, each, shared = 64, 4, 32
	for _, blocks := range []int{0, 128, 1000} {
		b.Run(fmt.Sprintf("chains=%d", blocks), func(b *testing.B) {
			table := load.NewTable()
			booking := func(i int) load.Booking {
				k := key(uint64(i % workers))
				w := table.Worker(k)
				return load.Booking{
					PrefillTokens: 10, Blocks: blocks + 1, Chains: chainsOf(i, blocks, min(blocks, shared)),
					PrefillKey: k, DecodeKey: k, Prefill: w, Decode: w,
				}
			}
			bookings := make([]load.Booking, workers*each)
			for i := range bookings {
				before := booking(i)
				table.Lock()
				table.Reserve(before)
				table.Unlock()
				bookings[i] = booking(i + len(bookings))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Lock()
				r := table.Reserve(bookings[i%len(bookings)])
				table.Unlock()
				r.Release()
			}
		})
	}
}

// BenchmarkActive asks about a prompt that begins with the system prompt of all
// requests, and goes on like one of them.
func BenchmarkActive(b *testing.B) {
	for _, workers := range []int{8, 64, 1000} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			table := load.NewTable()
			for i := range 4 * workers {
				reserveChains(table, uint64(i%workers), uint64(i%workers), 1, 129, chainsOf(i, 128, 32))
			}
			prompt, out := chainsOf(5, 128, 32), []int32(nil)
			b.ReportAllocs()
			for b.Loop() {
				out = table.Active(prompt, out)
			}
			if n := out[table.Worker(key(5)).Row()]; n != 128 {
				b.Fatalf("%d blocks, want all", n)
			}
		})
	}
}

// reserveChains books a prompt of which chains are known.
func reserveChains(table *load.Table, prefill, decode uint64, tokens, blocks int, chains []block.Chain) *load.Reservation {
	b := load.Booking{
		PrefillTokens: tokens, Blocks: blocks, Chains: chains,
		PrefillKey: key(prefill), DecodeKey: key(decode),
		Prefill: table.Worker(key(prefill)), Decode: table.Worker(key(decode)),
	}
	table.Lock()
	defer table.Unlock()
	return table.Reserve(b)
}

// BenchmarkRequest is all that a request of a pair costs: booked, named, first
// output, growing output, over.
func BenchmarkRequest(b *testing.B) {
	table := load.NewTable()
	booking := load.Booking{
		At: moment, PrefillTokens: 1000, Prompt: 2000, Blocks: 129, Chains: chainsOf(1, 128, 0),
		PrefillKey: key(1), DecodeKey: key(2), Prefill: table.Worker(key(1)), Decode: table.Worker(key(2)),
	}
	now := moment.Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		table.Lock()
		r := table.Reserve(booking)
		table.Unlock()
		r.Name("5c9d3a6e-0f1b-4e47-9c64-8d0e4f0f7a11")
		r.PrefillDone(now)
		r.Output(1, 1)
		r.Release()
	}
}

// BenchmarkAge ages what engines said of 1000 workers: all at once, which is done
// ten times a second at most, and a turn of it.
func BenchmarkAge(b *testing.B) {
	e, table := load.NewEngines(), load.NewTable()
	e.Feed(table)
	for i := range uint64(1000) {
		table.Worker(key(i))
		e.Step(key(i), queue(1, 1000, moment.Add(1e6*time.Hour))) // it is fresh for as long as the benchmark runs
	}
	for _, every := range []time.Duration{100 * time.Millisecond, 6400 * time.Microsecond} {
		b.Run(every.String(), func(b *testing.B) {
			now := moment
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(every)
				table.Age(now)
			}
		})
	}
}

// BenchmarkFigures reads the figures of 1000 workers, as a decision does.
func BenchmarkFigures(b *testing.B) {
	table := load.NewTable()
	workers := make([]*load.Worker, 1000)
	for i := range workers {
		workers[i] = table.Worker(key(uint64(i)))
	}
	sum := 0
	b.ReportAllocs()
	for b.Loop() {
		for _, w := range workers {
			f := w.Figures()
			sum += f.PrefillTokens + f.DecodeBlocks + f.Waiting
		}
	}
	if sum != 0 {
		b.Fatal(sum)
	}
}
