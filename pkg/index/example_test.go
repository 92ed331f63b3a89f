package index_test

import (
	"fmt"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// A worker tells that it stored two blocks; a prompt that starts with them is
// looked up.
func Example() {
	layout, seed := block.Layout{Size: 4}, block.NewSeed("", "")
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	hashes := layout.AppendHashes(nil, tokens, seed)

	x := index.New()
	err := x.Apply(&kvevent.Event{
		WorkerID: 7, Kind: kvevent.Stored,
		Blocks: []kvevent.Block{{Engine: 101, Hash: hashes[0]}, {Engine: 102, Hash: hashes[1]}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	var m index.Match
	x.Match(block.AppendChains(nil, hashes), &m)
	slot, _ := x.Lookup(fleet.Key{ID: 7})
	fmt.Printf("%d of %d blocks\n", m.Depth(slot).Total(), len(hashes))
	// Output: 2 of 3 blocks
}
