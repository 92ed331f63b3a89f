package pick_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// One of two prefill workers told that it holds two blocks of the prompt. The
// decision names it and the decode worker.
func Example() {
	const blockSize = 4
	pool, err := fleet.NewSnapshot([]fleet.Worker{
		{Key: fleet.Key{ID: 1}, Name: "prefill-1", Role: fleet.Prefill, Endpoint: netip.MustParseAddrPort("10.0.0.1:8000")},
		{Key: fleet.Key{ID: 2}, Name: "prefill-2", Role: fleet.Prefill, Endpoint: netip.MustParseAddrPort("10.0.0.2:8000")},
		{Key: fleet.Key{ID: 3}, Name: "decode-1", Role: fleet.Decode, Endpoint: netip.MustParseAddrPort("10.0.0.3:8000")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	x := index.New()
	p := pick.New(x, index.NewSpeculation(2*time.Second), load.NewTable(), blockSize)
	if err := p.SetFleet(pool); err != nil {
		fmt.Println(err)
		return
	}

	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	hashes := block.Layout{Size: blockSize}.AppendHashes(nil, tokens, block.NewSeed("", ""))
	stored := &kvevent.Event{WorkerID: 2, Kind: kvevent.Stored, Blocks: []kvevent.Block{{Engine: 101, Hash: hashes[0]}, {Engine: 102, Hash: hashes[1]}}}
	if err := x.Apply(stored); err != nil {
		fmt.Println(err)
		return
	}

	var scratch pick.Scratch
	req := &pick.Request{Tokens: len(tokens), Chains: block.AppendChains(nil, hashes)}
	d, err := p.Pick(req, time.Now(), rand.IntN, &scratch)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { d.Release(time.Now()) }()
	fmt.Printf("%s: prefill on %s, decode on %s, %d of %d blocks held\n", d.Mode, d.Prefill.Name, d.Decode.Name, d.Matched, d.Total)
	// Output: disaggregated: prefill on prefill-2, decode on decode-1, 2 of 3 blocks held
}
