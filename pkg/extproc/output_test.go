package extproc

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// slowEvents reads a whole stream the obvious way.
func slowEvents(stream string) (n int) {
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	data := false
	for _, line := range lines[:len(lines)-1] { // the last has no end
		if line == "" {
			if data {
				n++
			}
			data = false
		}
		if value, ok := strings.CutPrefix(line, "data:"); ok {
			value = strings.TrimPrefix(value, " ")
			data = data || value != "" && value != "[DONE]"
		}
	}
	return n
}

// eventStreams draws streams, broken ones too.
var eventStreams = rapid.Map(rapid.SliceOfN(rapid.OneOf(
	rapid.SampledFrom([]string{
		"data: {\"choices\":[{\"text\":\" a\"}]}\n\n", "data:{}\r\n\r\n", "data: x\r\r", "data: [DONE]\n\n", "data:[DONE]\n\n", "data: [DONE] \n\n",
		"data:  [DONE]\n\n", "data: [DON]\n\n", "data: [DO\n\n", "event: delta\ndata: a\n\n", "data: a\ndata: b\n\n", ": ping\n\n", "data\n\n", "data:\n\n",
		"data: \n\n", "Data: a\n\n", " data: a\n\n", "id: data: a\n\n", "dat", "a: ", "data:", " ", "[DONE]", "\n", "\r", "\r\n", "x",
	}),
	rapid.StringOfN(rapid.SampledFrom([]rune("data: [DONE]x\r\n")), 0, 20, -1),
), 0, 12), func(parts []string) string { return strings.Join(parts, "") })

// pieces cuts a text.
func pieces(t *rapid.T, text string) (cut []string) {
	for text != "" {
		n := rapid.IntRange(0, len(text)).Draw(t, "cut")
		cut, text = append(cut, text[:n]), text[n:]
	}
	return cut
}

// TestEventsEqualTwin: in whatever pieces a stream comes, its events are counted.
func TestEventsEqualTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := eventStreams.Draw(t, "stream")
		var e eventReader
		n, before := 0, ""
		for _, piece := range pieces(t, stream) {
			n += e.count([]byte(piece))
			before += piece
			// A CR ends a line at once: that a LF follows changes nothing.
			if want := slowEvents(before); n != want {
				t.Fatalf("%q: %d events so far, want %d", before, n, want)
			}
		}
	})
}

func TestEvents(t *testing.T) {
	for stream, want := range map[string]int{
		"data: {\"a\":1}\n\ndata: {}\n\ndata: [DONE]\n\n":        2,
		"data:{}\r\n\r\ndata:[DONE]\r\n\r\n":                     1,
		"data: a\r\rdata: b\r\r":                                 2,
		"event: message_start\ndata: {}\n\nevent: ping\n\n":      1,
		"data: a\ndata: b\n\n":                                   1,
		": keep-alive\n\n: keep-alive\n\n":                       0,
		"data: [DON\n\ndata: [DONE]]\n\n":                        2,
		"data: [DONE]\ndata: a\n\n":                              1,
		"data: a":                                                0,
		"data: a\n":                                              0,
		"data:\n\ndata\n\nDATA: a\n\n":                           0,
		"\n\n\n\n":                                               0,
		"data: a\n\n\n\n\n":                                      1,
		"data: " + strings.Repeat("data: ", 10_000) + "\n\n":     1,
		"data: \xff\x00\n\n" + strings.Repeat("data: a\n\n", 99): 100,
	} {
		var e eventReader
		if got := e.count([]byte(stream)); got != want || slowEvents(stream) != want {
			t.Errorf("%.60q: %d events, the twin counts %d, want %d", stream, got, slowEvents(stream), want)
		}
	}
}

// TestOutputEqualsTwin: the reservation hears the same in whatever pieces a response
// comes, and what a look at all tokens at once would say.
func TestOutputEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, prompt := rapid.IntRange(1, 5).Draw(t, "block size"), rapid.IntRange(0, 12).Draw(t, "prompt")
		expected, tokens := rapid.IntRange(0, 20).Draw(t, "expected"), rapid.IntRange(0, 30).Draw(t, "tokens")
		o := output{on: true, size: size, room: (size - prompt%size) % size, expected: expected}
		blocks, left := 0, 1.0
		for _, piece := range pieces(t, strings.Repeat("data: a\n\n", tokens)) {
			if o.pass([]byte(piece)) {
				if o.blocks <= blocks {
					t.Fatalf("%d blocks after %d", o.blocks, blocks)
				}
				blocks, left = o.blocks, o.left()
			}
		}
		wantBlocks, wantLeft, uses := 0, 1.0, (prompt+size-1)/size
		for n := 1; n <= tokens; n++ {
			if prompt+n > uses*size {
				uses++
				wantBlocks++
				if expected > 0 {
					wantLeft = max(0, 1-float64(n)/float64(expected))
				}
			}
		}
		if blocks != wantBlocks || left != wantLeft {
			t.Fatalf("%d blocks with %v left, want %d with %v", blocks, left, wantBlocks, wantLeft)
		}
	})
}

// tracking makes a rig count output.
func tracking(l *rig) {
	o := pick.DefaultOptions()
	o.Model, o.Dynamo.TrackOutputBlocks = pick.Dynamo, true
	l.picker.SetOptions(o)
}

// answerOf is the headers of a response of a type.
func answerOf(contentType string, pairs ...string) *request {
	m := answerHeadersMsg("200", false)
	m.GetResponseHeaders().Headers = headerMap(append([]string{":status", "200", "content-type", contentType}, pairs...)...)
	return m
}

// TestOutputCounts: blocks of the output count as it passes, weighed with what is
// left of it, and are gone with the request.
func TestOutputCounts(t *testing.T) {
	const token = "data: {\"choices\":[{\"text\":\" a\"}]}\n\n"
	const stream = "text/event-stream; charset=utf-8"
	prompt, events := count(1, 16), strings.Repeat(token, 4)
	for name, tc := range map[string]struct {
		off    bool
		body   string
		answer *request
		chunks []string
		want   []int // blocks after each chunk, besides the four of the prompt
	}{
		"whole blocks":            {body: tokenBody(prompt, ""), answer: answerOf(stream), chunks: []string{token, events, events}, want: []int{1, 2, 3}},
		"a block at a time":       {body: tokenBody(prompt, ""), answer: answerOf(stream), chunks: []string{events, token, token, token, token}, want: []int{1, 2, 2, 2, 2}},
		"the prompt leaves room":  {body: tokenBody(prompt[:13], ""), answer: answerOf(stream), chunks: []string{token, token, token, token}, want: []int{0, 0, 0, 1}},
		"the end is no token":     {body: tokenBody(prompt, ""), answer: answerOf(stream), chunks: []string{events, "data: [DONE]\n\n", token}, want: []int{1, 1, 2}},
		"cut anywhere":            {body: tokenBody(prompt, ""), answer: answerOf(stream), chunks: []string{events + token[:9], token[9:], "da", "ta: a\n", "\n"}, want: []int{1, 2, 2, 2, 2}},
		"weighed by max_tokens":   {body: tokenBody(prompt, `"max_tokens":16,`), answer: answerOf(stream), chunks: []string{events, events, events, events, events}, want: []int{1, 1, 1, 1, 0}},
		"weighed by a hint first": {body: tokenBody(prompt, `"max_tokens":9999,"nvext":{"agent_hints":{"osl":8}},`), answer: answerOf(stream), chunks: []string{events, events, events}, want: []int{1, 1, 0}},
		"a hint that is none":     {body: tokenBody(prompt, `"nvext":{"agent_hints":{"osl":"many"}},`), answer: answerOf(stream), chunks: []string{events, events}, want: []int{1, 2}},
		"no stream":               {body: tokenBody(prompt, ""), answer: answerOf("application/json"), chunks: []string{events, events}, want: []int{0, 0}},
		"compressed":              {body: tokenBody(prompt, ""), answer: answerOf(stream, "content-encoding", "gzip"), chunks: []string{events}, want: []int{0}},
		"not asked for":           {off: true, body: tokenBody(prompt, ""), answer: answerOf(stream), chunks: []string{events}, want: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			l := startRig(t, lifePool())
			if !tc.off {
				tracking(l.rig)
			}
			e := l.open(t)
			e.routed(headersMsg("POST", completions, false), tc.body)
			e.send(tc.answer)
			e.want("response headers")
			for i, chunk := range tc.chunks {
				e.send(answerBodyMsg(chunk, false))
				if got := streamedBody(e.next()).GetBody(); string(got) != chunk {
					t.Fatalf("chunk %d went on as %q", i, got)
				}
				if got := l.total(); got != (load.Figures{DecodeBlocks: 4 + tc.want[i], Requests: 1}) {
					t.Errorf("after chunk %d: %+v, want %d blocks besides the prompt's", i, got, tc.want[i])
				}
			}
			e.cancel()
			l.waitIdle(t)
		})
	}
}

// TestOutputOfAcknowledgedChunks: it counts in the modes that leave the body to the
// gateway, too.
func TestOutputOfAcknowledgedChunks(t *testing.T) {
	for _, mode := range []modes{{modeBuffered, modeStreamed}, {modeBuffered, modeBuffered}} {
		l := startRig(t, lifePool())
		tracking(l.rig)
		e := l.open(t)
		e.send(mode.first(headersMsg("POST", completions, false)))
		e.want("request headers")
		e.send(bodyMsg(prompt16, true))
		e.want("request body routed")
		e.send(answerHeadersMsg("200", false))
		e.want("response headers")
		e.send(answerBodyMsg(strings.Repeat("data: a\n\n", 9), true))
		e.want("response body")
		if got := l.total().DecodeBlocks; got != 4+3 {
			t.Errorf("%v: %d blocks, want 7", mode, got)
		}
		e.cancel()
		l.waitIdle(t)
	}
}

// TestOutputOfManyStreams: however the responses end, nothing stays behind.
func TestOutputOfManyStreams(t *testing.T) {
	const n = 32
	l := startRig(t, lifePool())
	tracking(l.rig)
	var wg sync.WaitGroup
	for i := range n {
		e := l.open(t)
		wg.Go(func() {
			more := ""
			if i%2 == 0 {
				more = fmt.Sprintf(`"max_tokens":%d,`, 5*i)
			}
			e.send(duplexModes.first(headersMsg("POST", completions, false)))
			e.send(bodyMsg(tokenBody(count(uint32(1000*(i/3)), 16+i%5), more), true))
			e.send(answerHeadersMsg("200", false))
			for range 8 {
				e.send(answerBodyMsg(strings.Repeat("data: a\n\n", i), false))
			}
			for range 2 + 1 + 8 { // the decision, the body, the headers, the chunks
				e.next()
			}
			if i%3 == 0 {
				e.send(answerBodyMsg("data: [DONE]\n\n", true))
				e.want("response body 14 eos")
			}
			e.cancel()
		})
	}
	wg.Wait()
	l.waitIdle(t)
}

// TestCountingOutputAllocatesNothing.
func TestCountingOutputAllocatesNothing(t *testing.T) {
	o := output{on: true, size: 16, expected: 1000}
	chunk := []byte(strings.Repeat("data: {\"choices\":[{\"text\":\" a\"}]}\n\n", 4))
	if n := testing.AllocsPerRun(100, func() {
		if o.pass(chunk) {
			o.left()
		}
	}); n != 0 {
		t.Errorf("%v allocations per chunk", n)
	}
	if o.tokens < 400 {
		t.Errorf("%d tokens counted", o.tokens)
	}
}

// BenchmarkOutput counts a stream whose events have the size that vLLM's chats have.
func BenchmarkOutput(b *testing.B) {
	event := `data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	for _, events := range []int{1, 64} {
		b.Run(fmt.Sprintf("events=%d", events), func(b *testing.B) {
			chunk := bytes.Repeat([]byte(event), events)
			o := output{on: true, size: 16}
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			for b.Loop() {
				o.pass(chunk)
			}
		})
	}
}
