package recovery

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
)

// dump is a whole dump of n blocks, one event each, as workers make it.
func dump(n int, codec Codec) []byte {
	var b bytes.Buffer
	b.WriteString(`{"data":{"TreeDump":{"events":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"worker_id":1,"storage_tier":"device","event":{"event_id":%d,"data":{"stored":{"parent_hash":%d,`+
			`"start_position":null,"blocks":[{"block_hash":%d,"tokens_hash":%d,"mm_extra_info":null}]}},"dp_rank":0}}`,
			i, 1<<63+uint64(i), 1<<63+uint64(i)+1, 1<<62+uint64(i))
	}
	fmt.Fprintf(&b, `],"last_event_id":%d}},"complete_final":false}`, n)
	if codec == JSON {
		return stream(b.String())
	}
	packed, err := transcode(nil, b.Bytes())
	if err != nil {
		panic(err)
	}
	return stream(string(packed))
}

// TestLargeDump: a dump of more than one batch of events, whole and in order, by
// the wire; and the same with its last event spoilt.
func TestLargeDump(t *testing.T) {
	const n = 2*batch + 7
	for _, codec := range []Codec{JSON, Msgpack} {
		whole := dump(n, codec)
		client := startClient(t, Config{})
		w := startWorker(t, answerTo(t, func(heardRequest) []byte { return whole }))
		a, err := client.Query(t.Context(), w.target(codec), askOne)
		must(t, err)
		if a.Kind != TreeDump || a.LastEventID != n || len(a.Events) != n {
			t.Fatalf("%s: %s of %d events up to %d", codec, a.Kind, len(a.Events), a.LastEventID)
		}
		for i, e := range a.Events {
			if e.ID != uint64(i) || uint64(e.Parent) != 1<<63+uint64(i) ||
				len(e.Blocks) != 1 || uint64(e.Blocks[0].Engine) != 1<<63+uint64(i)+1 || uint64(e.Blocks[0].Hash) != 1<<62+uint64(i) {
				t.Fatalf("%s: event %d: %+v", codec, i, e)
			}
		}
		at := bytes.LastIndex(whole, []byte("stored"))
		copy(whole[at:], "stolen")
		_, err = client.Query(t.Context(), w.target(codec), askOne)
		wantError(t, err, fmt.Sprintf("1 of %d events cannot be read", n%batch))
	}
}

// TestManyFrames: an answer that never ends is an error at its limit.
func TestManyFrames(t *testing.T) {
	client := startClient(t, Config{MaxResponseBytes: 1 << 20})
	sent := make(chan int, 1)
	w := startWorker(t, func(_ context.Context, conn net.Conn, h heardRequest) {
		say(conn, emptyAck)
		back := dial(t, h.info.Address, append(greeting(h.info.Subject), appendFrame(nil, []byte(`{}`), nil)...))
		if back == nil {
			return
		}
		defer back.Close()
		total, idle := 0, appendFrame(nil, nil, []byte(`{"padding":"`+strings.Repeat("x", 10_000)+`"}`))
		for {
			n, err := back.Write(idle)
			if total += n; err != nil {
				sent <- total
				return
			}
		}
	})
	_, err := client.Query(t.Context(), w.target(JSON), askOne)
	wantError(t, err, "larger than allowed")
	if n := <-sent; n < 1<<20-20_000 {
		t.Errorf("given up after %d bytes", n)
	}
}

func BenchmarkDump(b *testing.B) {
	const n = 100_000
	for _, codec := range []Codec{JSON, Msgpack} {
		b.Run(codec.String(), func(b *testing.B) {
			whole := dump(n, codec)
			b.SetBytes(int64(len(whole)))
			b.ReportAllocs()
			for b.Loop() {
				p := &parser{target: Target{Path: "1/x"}, request: askOne}
				if err := readAnswer(bytes.NewReader(whole), p, 1<<30); err != nil {
					b.Fatal(err)
				}
				if len(p.answer.Events) != n {
					b.Fatal("events are missing")
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
		})
	}
}

func BenchmarkQuery(b *testing.B) {
	client := startClient(b, Config{})
	w := startWorker(b, answerTo(b, func(heardRequest) []byte { return stream(one(1, 2)) }))
	for b.Loop() {
		if _, err := client.Query(b.Context(), w.target(JSON), askOne); err != nil {
			b.Fatal(err)
		}
	}
}
