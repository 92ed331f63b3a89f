package bench

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
)

// A request is JSON of about the size asked for, starts with the part that a
// worker holds, and ends in token ids that no other request has.
func TestWorkload(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10} {
		w := newWorkload(size)
		var first []uint32
		for range 2 {
			body := w.appendBody(nil, 7, random)
			if len(body) > size || len(body) < size-2*(idDigits+1) {
				t.Errorf("a body of %d bytes, want about %d", len(body), size)
			}
			var request struct{ Prompt []uint32 }
			if err := json.Unmarshal(body, &request); err != nil {
				t.Fatal(err)
			}
			n := len(w.stored[7])
			if !slices.Equal(request.Prompt[:n], w.stored[7]) {
				t.Error("the request does not start with what is stored")
			}
			if share := float64(n) / float64(len(request.Prompt)); share < 0.78 || share > 0.85 {
				t.Errorf("%.2f of the prompt is stored, want 0.80", share)
			}
			if slices.Equal(first, request.Prompt) {
				t.Error("two requests are equal")
			}
			first = request.Prompt
		}
		if !bytes.Equal(w.bodies[0][:w.fresh[0]/4], w.bodies[systems][:w.fresh[0]/4]) {
			t.Error("two conversations of one system prompt do not share its tokens")
		}
	}
}

// The events of a conversation put exactly its stored part into an index.
func TestEvents(t *testing.T) {
	w := newWorkload(16 << 10)
	x := index.New()
	for _, ev := range w.events(3, 42, 1) {
		if err := x.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	slot, ok := x.Lookup(fleet.Key{ID: 42})
	if !ok {
		t.Fatal("the worker is not in the index")
	}
	hashes := block.Layout{Size: blockSize}.AppendHashes(nil, w.stored[3], block.NewSeed("", ""))
	var m index.Match
	x.Match(block.AppendChains(nil, hashes), &m)
	if got := m.Depth(slot).Device; got != len(hashes) || x.Stats().UnknownParents != 0 {
		t.Errorf("%d of %d blocks are held", got, len(hashes))
	}
}

func TestPercentile(t *testing.T) {
	m := measured{}
	if m.percentile(0.5) != 0 {
		t.Error("a percentile of nothing")
	}
	for i := range 100 {
		m.latencies = append(m.latencies, time.Duration(99-i))
	}
	if m.percentile(0.5) != 50 || m.percentile(0.99) != 99 || m.percentile(1) != 99 {
		t.Errorf("%v %v %v", m.percentile(0.5), m.percentile(0.99), m.percentile(1))
	}
}
