package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// The workload follows the measurement of peers (peers.md section B): 256
// conversations over 16 system prompts, a quarter of a prompt is the system
// prompt, a fifth was never seen before.
const (
	conversations = 256
	systems       = 16
	systemShare   = 0.25
	freshShare    = 0.20
	blockSize     = 16
	idDigits      = 6 // token ids 100000 to 999999, so that sizes are exact
)

// workload is the prompts of one body size.
type workload struct {
	bodies [][]byte   // one per conversation
	fresh  []int      // where the never-seen token ids start in each body
	stored [][]uint32 // the part of each prompt that a worker holds
}

// newWorkload makes bodies of about size bytes whose prompts are token ids.
func newWorkload(size int) *workload {
	const head, tail = `{"model":"bench","stream":true,"max_tokens":16,"prompt":[`, `]}`
	random := rand.New(rand.NewPCG(uint64(size), 1))
	n := max(1, (size-len(head)-len(tail)+1)/(idDigits+1))
	ids := func(n int) []uint32 {
		list := make([]uint32, n)
		for i := range list {
			list[i] = 100_000 + uint32(random.IntN(900_000))
		}
		return list
	}
	var shared [systems][]uint32
	for i := range shared {
		shared[i] = ids(int(float64(n) * systemShare))
	}
	w := &workload{}
	for c := range conversations {
		system := shared[c%systems]
		fresh := int(float64(n) * freshShare)
		stored := append(append([]uint32{}, system...), ids(n-len(system)-fresh)...)
		body := []byte(head)
		for _, id := range stored {
			body = append(strconv.AppendUint(body, uint64(id), 10), ',')
		}
		w.fresh = append(w.fresh, len(body))
		for _, id := range ids(fresh) {
			body = append(strconv.AppendUint(body, uint64(id), 10), ',')
		}
		if body[len(body)-1] == ',' {
			body = body[:len(body)-1]
		}
		w.bodies = append(w.bodies, append(body, tail...))
		w.stored = append(w.stored, stored)
	}
	return w
}

// appendBody appends a request of one conversation to dst, with a tail that no
// earlier request had.
func (w *workload) appendBody(dst []byte, conversation int, random *rand.Rand) []byte {
	start := len(dst)
	dst = append(dst, w.bodies[conversation]...)
	for i := start + w.fresh[conversation]; i+idDigits < len(dst)-2; i += idDigits + 1 {
		for j := 1; j < idDigits; j++ { // the first digit stays, so the length does
			dst[i+j] = byte('0' + random.IntN(10))
		}
	}
	return dst
}

// events returns what a worker tells that holds the stored part of a prompt.
func (w *workload) events(conversation int, workerID, firstID uint64) []kvevent.Event {
	hashes := block.Layout{Size: blockSize}.AppendHashes(nil, w.stored[conversation], block.NewSeed("", ""))
	chains := block.AppendChains(nil, hashes)
	var events []kvevent.Event
	for i := 0; i < len(hashes); i += perEvent {
		ev := kvevent.Event{WorkerID: workerID, ID: firstID + uint64(len(events)), Kind: kvevent.Stored}
		if i > 0 {
			ev.HasParent, ev.Parent = true, kvevent.EngineHash(chains[i-1])
		}
		for j := i; j < min(i+perEvent, len(hashes)); j++ {
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: kvevent.EngineHash(chains[j]), Hash: hashes[j]})
		}
		events = append(events, ev)
	}
	return events
}

func workerName(i int) string { return fmt.Sprintf("bench-%d", i) }
