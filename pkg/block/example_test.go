package block_test

import (
	"fmt"

	"github.com/warmpath/warmpath/pkg/block"
)

// A prompt of eleven tokens in blocks of four has two full blocks.
func Example() {
	layout, seed := block.Layout{Size: 4}, block.NewSeed("", "")
	hashes := layout.AppendHashes(nil, []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, seed)
	chains := block.AppendChains(nil, hashes)
	for i := range hashes {
		fmt.Println(hashes[i], chains[i])
	}
	// Output:
	// 14643705804678351452 14643705804678351452
	// 16777012769546811212 4945711292740353085
}
