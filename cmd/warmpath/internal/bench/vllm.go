package bench

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/vllm"
)

// vocabulary of the tokens, as of today's models: ids of two and of four bytes
// on the wire.
const vocabulary = 128_000

// fromVLLM decodes the messages of vLLM itself, which hold token ids, hashes them,
// and applies the events to an empty index, all of it inside the time.
func (f *filling) fromVLLM() ([]CaseRow, error) {
	messages := make([][][]byte, f.workers)
	decoders := make([]*vllm.Decoder, f.workers)
	for w, events := range f.load.byWorker {
		var err error
		if decoders[w], err = vllm.NewDecoder(vllm.Config{WorkerID: worker(w).ID, BlockSize: blockSize}); err != nil {
			return nil, err
		}
		for batch := range slices.Chunk(events, eventsPerMessage) {
			said := make([]vllm.Event, len(batch))
			for i := range batch {
				said[i] = asVLLM(&batch[i])
			}
			msg, err := vllm.AppendBatch(nil, vllm.ArrayForm, vllm.Batch{Time: 1}, said)
			if err != nil {
				return nil, err
			}
			messages[w] = append(messages[w], msg)
		}
	}
	r, err := f.fromBytes("apply-vllm", messages, func(x *index.Index, _, w int, msg []byte) error {
		var failed error
		_, err := decoders[w].Decode(msg, func(ev *kvevent.Event) {
			if err := x.Apply(ev); err != nil {
				failed = err
			}
		})
		return errors.Join(err, failed)
	})
	return []CaseRow{r}, err
}

// asVLLM says a stored event as vLLM does, with tokens instead of their hash.
func asVLLM(ev *kvevent.Event) vllm.Event {
	out := vllm.Event{Kind: kvevent.Stored, BlockSize: blockSize, Medium: "GPU", HasParent: ev.HasParent, Parent: ev.Parent}
	for _, b := range ev.Blocks {
		out.Hashes = append(out.Hashes, b.Engine)
		out.Tokens = appendTokens(out.Tokens, b.Hash)
	}
	return out
}

// appendTokens makes up the tokens of a block: the same for the same content.
func appendTokens(dst []uint32, content block.Hash) []uint32 {
	random := rand.New(rand.NewPCG(uint64(content), 3))
	for range blockSize {
		dst = append(dst, random.Uint32N(vocabulary))
	}
	return dst
}
