package pick_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
)

// One decision over pools of several sizes, booked and released. Prompts of 128
// blocks are held by one worker in eight.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{8, 64, 1000} {
		b.Run(fmt.Sprintf("aggregated-%d", n), func(b *testing.B) { benchPick(b, workers(1, n, fleet.Aggregated), true) })
		b.Run(fmt.Sprintf("unknown-%d", n), func(b *testing.B) { benchPick(b, workers(1, n, fleet.Aggregated), false) })
	}
	b.Run("pair-64-64", func(b *testing.B) {
		benchPick(b, append(workers(1, 64, fleet.Prefill), workers(65, 64, fleet.Decode)...), true)
	})
}

func benchPick(b *testing.B, pool []fleet.Worker, known bool) {
	for _, m := range []pick.Model{pick.Congestion, pick.Dynamo} {
		b.Run(m.String(), func(b *testing.B) {
			r := newRig(b, 0, pool...)
			o := pick.DefaultOptions()
			o.Model = m
			r.picker.SetOptions(o)
			contents, chains := promptOf(1, 128)
			for i := 0; i < len(pool); i += 8 {
				r.hold(b, pool[i].ID, contents, index.Depth{Device: 16 * (1 + i%8)})
			}
			req := pick.Request{Tokens: 2050, Chains: chains}
			if !known {
				req.Chains = nil
			}
			now := start
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				d, err := r.picker.Pick(&req, now, r.random, &r.scratch)
				if err != nil {
					b.Fatal(err)
				}
				d.Reservation.Release()
			}
		})
	}
}

// With guesses: every decision records one, or joins one, and ends it.
func BenchmarkPickGuess(b *testing.B) {
	for _, blocks := range []int{128, 1000} {
		_, chains := promptOf(1, blocks)
		r := newRig(b, ttl, append(workers(1, 32, fleet.Prefill), workers(2001, 32, fleet.Decode)...)...)
		b.Run(fmt.Sprintf("workers=64/blocks=%d", blocks), func(b *testing.B) {
			req := pick.Request{Tokens: blocks * blockSize, Chains: chains}
			now := start
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(10 * time.Millisecond)
				d, err := r.picker.Pick(&req, now, r.random, &r.scratch)
				if err != nil {
					b.Fatal(err)
				}
				d.PrefillDone(now)
				d.Release(now)
			}
		})
	}
}
