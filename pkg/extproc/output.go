package extproc

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// output counts the tokens of one response as they pass, in blocks (dynamo.md 4.2,
// track-output-blocks). The zero value counts nothing.
//
// An event of a stream is taken for a token. It is one with the engines' defaults;
// where they put several tokens into an event, less is counted. A response that is
// no stream has its whole output at its end, when it does not matter any more.
type output struct {
	on       bool
	size     int // tokens per block
	room     int // tokens that fit into the last block of the prompt
	expected int // tokens; 0: not known
	events   eventReader
	tokens   int
	blocks   int // beyond those of the prompt
}

// newOutput returns what counts the output of a request that was placed, nothing
// where the policy does not ask for it. The expected length is the client's hint,
// else the most that it allows: that makes blocks count for longer, never too short.
func newOutput(r *routing, w *work) output {
	if !r.Picker.TracksOutput() {
		return output{}
	}
	size := r.Layout.Size
	return output{
		on: true, size: size, room: (size - w.req.Tokens%size) % size,
		expected: cmp.Or(w.body.ExpectedOutput, w.body.MaxTokens),
	}
}

// begin reads from the headers of the response whether it is a stream.
func (o *output) begin(headers []*corev3.HeaderValue) {
	if o.on {
		f := formatOf(headers)
		o.on = f.events && !f.encoded
	}
}

// pass counts the next bytes of the response, and says whether the output uses more
// blocks than before.
func (o *output) pass(chunk []byte) (more bool) {
	if !o.on {
		return false
	}
	o.tokens += o.events.count(chunk)
	blocks := (o.tokens - o.room + o.size - 1) / o.size
	more = blocks > o.blocks
	o.blocks = max(o.blocks, blocks)
	return more
}

// left is the share of the expected output that was still to come when the last
// block was begun: however the gateway cuts the response, it is the same.
func (o *output) left() float64 {
	if o.expected == 0 {
		return 1
	}
	first := o.room + (o.blocks-1)*o.size + 1 // the token that began the block
	return max(0, 1-float64(first)/float64(o.expected))
}

// countOutput tells the reservation of a response that passes.
func (st *stream) countOutput(chunk []byte) {
	if o := &st.output; o.pass(chunk) && st.decision.Reservation != nil {
		st.decision.Reservation.Output(o.blocks, o.left())
	}
}
