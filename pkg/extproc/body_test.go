package extproc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// chunks is what came back of a body.
type chunks struct {
	bytes []byte
	eos   int // how many chunks said it
	last  bool
	max   int
}

func (c *chunks) add(t *testing.T, r *response) {
	t.Helper()
	b := streamedBody(r)
	if b == nil {
		t.Fatalf("got %q, want a chunk", describe(r))
	}
	c.bytes = append(c.bytes, b.GetBody()...)
	c.last = b.GetEndOfStream()
	if c.last {
		c.eos++
	}
	c.max = max(c.max, len(b.GetBody()))
}

func (c *chunks) check(t *testing.T, want []byte) {
	t.Helper()
	if !bytes.Equal(c.bytes, want) {
		t.Errorf("%d bytes came back of %d, or not the same", len(c.bytes), len(want))
	}
	if c.eos != 1 || !c.last {
		t.Errorf("%d chunks say that they are the last; the last one does: %v", c.eos, c.last)
	}
	if c.max > 62_000 {
		t.Errorf("a chunk has %d bytes", c.max)
	}
}

// send sends a body in pieces cut at the given places, in the way of HTTP/1.1
// (the end alone) or HTTP/2.
func (e *envoy) sendBody(body []byte, cuts []int, endAlone bool) {
	e.t.Helper()
	from := 0
	for _, to := range cuts {
		e.send(bodyMsg(string(body[from:to]), false))
		from = to
	}
	e.send(bodyMsg(string(body[from:]), !endAlone))
	if endAlone {
		e.send(bodyMsg("", true))
	}
}

// TestBodySplitAtEveryByte: in two at every place, and into single bytes.
func TestBodySplitAtEveryByte(t *testing.T) {
	body := []byte(`{"model": "é", "prompt": [1, 2, 3, 4, 5, 6, 7, 8], "user": "a\u00e9\\"}`)
	splits := [][]int{}
	every := []int{}
	for i := range len(body) + 1 {
		splits = append(splits, []int{i})
		every = append(every, i)
	}
	splits = append(splits, every)
	l := startRig(t, splitPool())
	for _, cuts := range splits {
		for _, endAlone := range []bool{true, false} {
			e := l.open(t)
			e.send(duplexModes.first(headersMsg("POST", completions, false)))
			e.sendBody(body, cuts, endAlone)
			e.want("request headers routed")
			var got chunks
			for got.eos == 0 {
				got.add(t, e.next())
			}
			got.check(t, body)
			if err := e.finish(); err != nil {
				t.Errorf("cut at %v: %v", cuts, err)
			}
		}
	}
	l.waitIdle(t)
	if n := l.metric(t, "warmpath_prompts_total", "source", "token_ids"); n != float64(2*len(splits)) {
		t.Errorf("the prompt was understood %v times of %d", n, 2*len(splits))
	}
}

// TestLargeBodies: 20 MB, cut at random, with an announced length or none.
func TestLargeBodies(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]uint32, 100_000)
	for i := range ids {
		ids[i] = random.Uint32()
	}
	body := []byte(tokenBody(ids, `"user":"`))
	filler := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)
	body = bytes.Replace(body, []byte(`"user":"`), append(append([]byte(`"user":"`), filler...), `",`...), 1)
	for _, length := range []string{"", fmt.Sprint(len(body))} {
		l := startRig(t, splitPool())
		var cuts []int
		for at := 0; at < len(body); at += 1 + random.IntN(1<<20) {
			cuts = append(cuts, at)
		}
		extra := []string{}
		if length != "" {
			extra = []string{"content-length", length}
		}
		e := l.open(t)
		e.send(duplexModes.first(headersMsg("POST", completions, false, extra...)))
		e.sendBody(body, cuts, true)
		e.want("request headers routed")
		var got chunks
		for got.eos == 0 {
			got.add(t, e.next())
		}
		got.check(t, body)
		if n := l.metric(t, "warmpath_prompt_blocks_total", "kind", "total"); n != 25_000 {
			t.Errorf("the prompt has %v blocks", n)
		}
		if err := e.finish(); err != nil {
			t.Error(err)
		}
		l.waitIdle(t)
	}
}

// TestPassThrough: what is not read goes on chunk by chunk, each way, before the
// next one comes.
func TestPassThrough(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	l := startRig(t, splitPool())
	e := l.open(t)
	e.send(duplexModes.first(headersMsg("POST", "/v1/audio/transcriptions", false)))
	e.want("request headers routed")
	through := func(message func(string, bool) *request) {
		var got chunks
		var sent []byte
		for i := range 60 {
			data := make([]byte, random.IntN(200_000))
			for j := range data {
				data[j] = byte(random.Uint32())
			}
			sent = append(sent, data...)
			e.send(message(string(data), i == 59))
			for first := true; first || len(got.bytes) < len(sent); first = false {
				got.add(t, e.next())
			}
		}
		got.check(t, sent)
	}
	through(bodyMsg)
	e.send(answerHeadersMsg("200", false))
	e.want("response headers")
	through(answerBodyMsg)
	if err := e.finish(); err != nil {
		t.Error(err)
	}
}

// TestChunkSizes: what falls into one chunk and what into two.
func TestChunkSizes(t *testing.T) {
	if maxChunk > 62_000 {
		t.Errorf("chunks of %d bytes are more than the protocol allows", maxChunk)
	}
	chunk := func(n int, end string) string { return fmt.Sprintf("response body %d%s", n, end) }
	for _, tc := range []struct {
		size int
		want []string
	}{
		{maxChunk - 1, []string{chunk(maxChunk-1, " eos")}},
		{maxChunk, []string{chunk(maxChunk, " eos")}},
		{maxChunk + 1, []string{chunk(maxChunk, ""), chunk(1, " eos")}},
		{2 * maxChunk, []string{chunk(maxChunk, ""), chunk(maxChunk, " eos")}},
	} {
		r := newRig(t, aggregatedPool())
		m := newMemory(t.Context(),
			duplexModes.first(headersMsg("GET", otherPath, true)),
			answerHeadersMsg("200", false),
			answerBodyMsg(string(make([]byte, tc.size)), true))
		if err := r.server.Process(m); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, reply := range m.out[3] {
			got = append(got, describe(reply))
		}
		if fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%d bytes: got %q, want %q", tc.size, got, tc.want)
		}
	}
}

// TestBufferedLargeBody: a gateway that buffers sends one message, far over
// gRPC's own limit of 4 MiB.
func TestBufferedLargeBody(t *testing.T) {
	l := startRig(t, splitPool())
	e := l.open(t)
	body := `{"model":"m","prompt":"` + string(bytes.Repeat([]byte("x"), 8<<20)) + `"}`
	e.send(modes{modeBuffered, modeBuffered}.first(headersMsg("POST", completions, false)))
	e.want("request headers")
	e.send(bodyMsg(body, true))
	e.want("request body routed")
	if err := e.finish(); err != nil {
		t.Error(err)
	}
}
