package encoder

import (
	"github.com/warmpath/warmpath/pkg/block"
)

// Result is what one prompt comes to. The caller owns it and hands it to one
// call at a time; every call starts it over and keeps its buffers. The zero value
// is ready.
type Result struct {
	// WantIDs asks for IDs and Hashes too. The memo keeps neither, so the
	// whole text is tokenized again for them; Chains come the usual way.
	WantIDs bool

	// Tokens is how many token ids are known to be the beginning of the prompt
	// as the engine sees it. It is all of them when Whole.
	Tokens int
	// Whole says that the prompt ends behind Tokens. Otherwise an image or other
	// media follows, of which nothing is known here.
	Whole bool
	// Chains are the prefix-chain hashes of the full blocks of Tokens.
	Chains []block.Chain
	// IDs are the Tokens token ids, and Hashes the content hashes of their full
	// blocks. Both are empty without WantIDs.
	IDs    []uint32
	Hashes []block.Hash
	// TextBytes is the length of the prompt's text, UsableBytes of the part of
	// it before the first media, ReusedBytes of the part that the memo knew.
	TextBytes, UsableBytes, ReusedBytes int

	text   []byte       // room for the prompt's text
	open   []uint32     // token ids behind the last full block
	hashes []block.Hash // of the blocks just completed
	cut    []uint32     // ids of a text cut short
	path   []key        // nodes that were found, from the root down
	fresh  []freshNode  // nodes to store, from the top down
	tails  []uint32     // the tails of fresh
}

// freshNode is a node to store. Its chains lie in Result.Chains, its tail in
// Result.tails.
type freshNode struct {
	key                key
	mark               mark // how its text ends
	tokens             int
	chainFrom, chainTo int
	tailFrom, tailTo   int
}

// Room is the memory that r keeps for the next call, in bytes. Whoever pools
// results drops those that grew large.
func (r *Result) Room() int {
	const keyBytes, freshBytes = 16, 80
	return cap(r.text) + 4*(cap(r.IDs)+cap(r.open)+cap(r.cut)+cap(r.tails)) +
		8*(cap(r.Chains)+cap(r.Hashes)+cap(r.hashes)) +
		keyBytes*cap(r.path) + freshBytes*cap(r.fresh)
}

func (r *Result) reset() {
	*r = Result{
		WantIDs: r.WantIDs, Chains: r.Chains[:0], IDs: r.IDs[:0], Hashes: r.Hashes[:0],
		text: r.text, open: r.open[:0], hashes: r.hashes[:0], cut: r.cut[:0],
		path: r.path[:0], fresh: r.fresh[:0], tails: r.tails[:0],
	}
}

// close turns the full blocks at the start of r.open into chains.
func (r *Result) close(layout block.Layout, seed block.Seed) {
	n := layout.Blocks(len(r.open))
	if n == 0 {
		return
	}
	r.hashes = layout.AppendHashes(r.hashes[:0], r.open, seed)
	for _, h := range r.hashes {
		if len(r.Chains) == 0 {
			r.Chains = append(r.Chains, block.Root(h))
		} else {
			r.Chains = append(r.Chains, r.Chains[len(r.Chains)-1].Next(h))
		}
	}
	left := copy(r.open, r.open[n*layout.Size:])
	r.open = r.open[:left]
}

// tokens is how many token ids r has gone through.
func (r *Result) tokens(layout block.Layout) int { return len(r.Chains)*layout.Size + len(r.open) }
