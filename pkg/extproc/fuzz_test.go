package extproc

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// fuzzLimit is the body limit under fuzzing, small enough to be reached.
const fuzzLimit = 4096

// splitBody cuts data into chunks: each byte of cuts is the length of the next
// one, and what is left is the last.
func splitBody(data, cuts []byte) [][]byte {
	var parts [][]byte
	for _, n := range cuts {
		k := min(int(n), len(data))
		parts = append(parts, data[:k])
		data = data[k:]
	}
	return append(parts, data)
}

// How a body ends.
const (
	endOnChunk = iota
	endAlone
	endByTrailers
	numEnds
)

// bodyMessages is a request as a gateway sends it.
func bodyMessages(m modes, path string, data, cuts []byte, end int) []*request {
	in := []*request{m.first(headersMsg("POST", path, false))}
	if m.request == modeBuffered {
		in = append(in, bodyMsg(string(data), end != endByTrailers))
	} else {
		parts := splitBody(data, cuts)
		for i, p := range parts {
			in = append(in, bodyMsg(string(p), end == endOnChunk && i == len(parts)-1))
		}
		if end == endAlone {
			in = append(in, bodyMsg("", true))
		}
	}
	if end == endByTrailers {
		in = append(in, trailersMsg())
	}
	return in
}

// reporter is what a fuzz target and a property test have in common.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// checkBodyReplies holds for every request: it is refused, and that is all; or
// its bytes come back unchanged behind one decision.
func checkBodyReplies(t reporter, replies []*response, m modes, path string, data []byte, end int) {
	t.Helper()
	read := path != otherPath
	var got chunks
	headers, refusals, trailers, decisions := 0, 0, 0, 0
	for i, r := range replies {
		if r.GetDynamicMetadata() != nil {
			decisions++
		}
		switch {
		case r.GetImmediateResponse() != nil:
			refusals++
			status := int(r.GetImmediateResponse().GetStatus().GetCode())
			if want := len(data) > fuzzLimit; !read || (status == 413) != want || status != 413 && status != 400 {
				t.Errorf("%d bytes to %s are refused with %d", len(data), path, status)
			}
			if i != len(replies)-1 {
				t.Errorf("%q follows a refusal", describe(replies[i+1]))
			}
		case r.GetRequestHeaders() != nil:
			headers++
			if i != 0 {
				t.Errorf("reply %d is %q", i, describe(r))
			}
		case streamedBody(r) != nil:
			if b := streamedBody(r); b.GetEndOfStream() {
				got.eos++
				got.last = i == len(replies)-1
			}
			got.bytes = append(got.bytes, streamedBody(r).GetBody()...)
			got.max = max(got.max, len(streamedBody(r).GetBody()))
		case r.GetRequestTrailers() != nil:
			trailers++
			if i != len(replies)-1 {
				t.Errorf("%q follows the trailers", describe(replies[i+1]))
			}
		}
	}
	if refusals > 0 {
		if decisions > 0 {
			t.Errorf("a request is routed and refused")
		}
		return
	}
	if headers != 1 || decisions != 1 {
		t.Errorf("%d answers to the headers and %d decisions", headers, decisions)
	}
	if (trailers == 1) != (end == endByTrailers) || trailers > 1 {
		t.Errorf("%d answers to trailers", trailers)
	}
	if m.request != modeDuplex {
		return
	}
	if !bytes.Equal(got.bytes, data) {
		t.Errorf("the body comes back as %q, was %q", got.bytes, data)
	}
	if got.max > 62_000 {
		t.Errorf("a chunk of %d bytes", got.max)
	}
	if want := end != endByTrailers; (got.eos == 1 && got.last) != want || !want && got.eos != 0 {
		t.Errorf("%d chunks end the body, the last reply does: %v", got.eos, got.last)
	}
}

var fuzzPaths = []string{completions, chat, otherPath}

var fuzzModes = []modes{duplexModes, {modeBuffered, modeBuffered}}

func FuzzBodyPath(f *testing.F) {
	for i, body := range []string{
		"", "{}", prompt16, helloChat, `{"model":"m","prompt":"é\u00e9"}`, `{"model":"m","prompt":[1,2`,
		`{"model":1}`, `[]`, "\xff\xfe", `{"model":"m","prompt":[[1,2,3,4,5],[6]],"nvext":{"token_data":[1]},"cache_salt":"s"}`,
		string(bytes.Repeat([]byte("["), 3000)), string(bytes.Repeat([]byte(" "), fuzzLimit+1)),
	} {
		f.Add([]byte(body), []byte{1, 0, 7, 255}, uint8(i))
		f.Add([]byte(body), []byte{}, uint8(i*5))
	}
	f.Fuzz(func(t *testing.T, body, cuts []byte, shape uint8) {
		path := fuzzPaths[int(shape)%len(fuzzPaths)]
		m := fuzzModes[int(shape)/len(fuzzPaths)%len(fuzzModes)]
		end := int(shape) / (len(fuzzPaths) * len(fuzzModes)) % numEnds
		r := newRig(t, splitPool(), func(c *Config) {
			c.MaxBodyBytes, c.TextBlocks = fuzzLimit, true
			c.Random = func(int) int { return 0 } // one input, one way through the code
		})
		stream := newMemory(t.Context(), bodyMessages(m, path, body, cuts, end)...)
		if err := r.server.Process(stream); err != nil {
			t.Fatal(err)
		}
		checkBodyReplies(t, stream.all(), m, path, body, end)
		r.waitIdle(t)
	})
}

// TestBodyPathOfGoodBodies does the same with bodies that are well-formed, which
// a fuzzer rarely makes, on one server: pooled memory of one request must not
// show in the next.
func TestBodyPathOfGoodBodies(t *testing.T) {
	r := newRig(t, splitPool(), func(c *Config) { c.MaxBodyBytes = fuzzLimit }, withTextBlocks)
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Uint32(), 1, 500).Draw(t, "ids")
		body := []byte(tokenBody(ids, ""))
		cuts := rapid.SliceOf(rapid.Byte()).Draw(t, "cuts")
		path := rapid.SampledFrom([]string{completions, otherPath}).Draw(t, "path")
		m := rapid.SampledFrom(fuzzModes).Draw(t, "modes")
		end := rapid.IntRange(0, numEnds-1).Draw(t, "end")
		stream := newMemory(t.Context(), bodyMessages(m, path, body, cuts, end)...)
		if err := r.server.Process(stream); err != nil {
			t.Fatal(err)
		}
		replies := stream.all()
		checkBodyReplies(t, replies, m, path, body, end)
		if refused := replies[len(replies)-1].GetImmediateResponse(); refused != nil && len(body) <= fuzzLimit {
			t.Errorf("a good body is refused: %s", refused.GetBody())
		}
	})
	r.waitIdle(t)
}
