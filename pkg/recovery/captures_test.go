package recovery

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// eachRecording runs a test per recorded exchange.
func eachRecording(t *testing.T, test func(t *testing.T, s Source, r *recording)) {
	for _, version := range versions {
		source, all := record(t, version)
		for i, r := range all {
			t.Run(fmt.Sprintf("%s/%d", version, i+1), func(t *testing.T) { test(t, source, r) })
		}
	}
}

// ownOrder says whether a recorded body has its fields in the order that real
// routers write them in. One, about a wrong worker, was made with another.
func ownOrder(r *recording) bool {
	first, _, _ := strings.Cut(string(r.Query), "start_event_id")
	return r.Codec == "json" || strings.Contains(first, "dp_rank")
}

// recordedRequest returns a recorded request as we send it. One of 1.2.1 has no
// rank, which only 1.3 wants and which we put at the end of both.
func recordedRequest(r *recording) []byte {
	body := r.heard.body
	if bytes.Contains(body, []byte("dp_rank")) {
		return r.Request
	}
	const rank = `, "dp_rank": 0}`
	more := uint64(len(rank) - 1)
	b := bytes.Clone(r.Request[:len(r.Request)-1])
	// Its length is told before the frame, and in it.
	path := 2 + int(binary.BigEndian.Uint16(b))
	at := path + 2 + int(binary.BigEndian.Uint16(b[path:]))
	binary.BigEndian.PutUint32(b[at:], binary.BigEndian.Uint32(b[at:])+uint32(more))
	binary.BigEndian.PutUint64(b[at+12:], binary.BigEndian.Uint64(b[at+12:])+more)
	return append(b, rank...)
}

// TestRequestBytes: what we send is what was recorded, byte for byte.
func TestRequestBytes(t *testing.T) {
	eachRecording(t, func(t *testing.T, s Source, r *recording) {
		got := appendRequest(nil, s.Target, r.request(), r.heard.info.Address, r.heard.info.Context)
		if ownOrder(r) {
			if diff := cmp.Diff(recordedRequest(r), got); diff != "" {
				t.Errorf("request (-recorded +ours):\n%s", diff)
			}
			return
		}
		ours, err := hear(bytes.NewReader(got))
		must(t, err)
		if len(got) != len(r.Request) || !bytes.Equal(bytes.TrimSuffix(got, ours.body), bytes.TrimSuffix(r.Request, r.heard.body)) {
			t.Errorf("request (-recorded +ours):\n%s", cmp.Diff(r.Request, got))
		}
		if diff := cmp.Diff(generic(t, r.heard.body), generic(t, ours.body)); diff != "" {
			t.Errorf("body (-recorded +ours):\n%s", diff)
		}
	})
}

// generic decodes JSON or msgpack into plain values, integers as decimal text.
func generic(t testing.TB, b []byte) any {
	t.Helper()
	if len(b) > 0 && b[0] != '{' && b[0] != '"' && b[0] != 'n' {
		var js bytes.Buffer
		rest, err := msgp.UnmarshalAsJSON(&js, b)
		if err != nil || len(rest) > 0 {
			t.Fatalf("msgpack: %v, %d bytes follow", err, len(rest))
		}
		b = js.Bytes()
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	must(t, d.Decode(&v))
	return v
}

// TestResponseFrames: the recorded stream is exactly the recorded frames.
func TestResponseFrames(t *testing.T) {
	eachRecording(t, func(t *testing.T, _ Source, r *recording) {
		stream := bytes.NewReader(r.Response)
		for i, want := range r.Frames {
			f, err := readFrame(stream, maxHeader, 1<<20)
			must(t, err)
			for _, part := range []struct {
				name string
				got  []byte
				want json.RawMessage
			}{{"header", f.header, want.Header}, {"body", f.body, want.Body}} {
				none := len(part.want) == 0 || string(part.want) == "null"
				if none != (len(part.got) == 0) {
					t.Fatalf("frame %d: %s of %d bytes, want %s", i, part.name, len(part.got), part.want)
				}
				if none {
					continue
				}
				if diff := cmp.Diff(generic(t, part.want), generic(t, part.got)); diff != "" {
					t.Errorf("frame %d: %s (-recorded +read):\n%s", i, part.name, diff)
				}
				if part.got[0] == '{' {
					packed, err := transcode(nil, part.got)
					must(t, err)
					if diff := cmp.Diff(generic(t, part.want), generic(t, packed)); diff != "" {
						t.Errorf("frame %d: %s transcoded (-recorded +read):\n%s", i, part.name, diff)
					}
				}
			}
		}
		if _, err := readFrame(stream, maxHeader, 1<<20); !errors.Is(err, io.EOF) {
			t.Errorf("after the last frame: %v, want the end", err)
		}
	})
}

// expected reads an answer from the recorded frames with encoding/json alone.
func expected(t testing.TB, r *recording) (Answer, *RemoteError) {
	t.Helper()
	type held struct {
		Events []struct {
			WorkerID  uint64 `json:"worker_id"`
			Tier      string `json:"storage_tier"`
			Residency string `json:"residency_domain"`
			Event     struct {
				ID   uint64 `json:"event_id"`
				Rank uint32 `json:"dp_rank"`
				Data struct {
					Stored struct {
						Parent *uint64 `json:"parent_hash"`
						Blocks []struct {
							Engine uint64 `json:"block_hash"`
							Tokens uint64 `json:"tokens_hash"`
						}
					}
				}
			}
		}
		Last uint64 `json:"last_event_id"`
	}
	var body struct {
		Data struct {
			Events, TreeDump *held
			TooNew           *struct {
				From   *uint64 `json:"requested_start"`
				To     *uint64 `json:"requested_end"`
				Newest uint64  `json:"newest_available"`
			}
			InvalidRange *struct {
				From *uint64 `json:"start_id"`
				To   *uint64 `json:"end_id"`
			}
			Error *string
		}
	}
	must(t, json.Unmarshal(r.Frames[2].Body, &body))
	a := Answer{Bytes: int64(len(r.Response))}
	for _, i := range []int{0, len(r.Frames) - 1} { // the greeting and the end are not of the answer
		a.Bytes -= frameHead + int64(len(bytes.ReplaceAll(r.Frames[i].Header, []byte(`": "`), []byte(`":"`))))
	}
	a.Bytes++ // ", " between the two fields of the greeting
	from := body.Data.Events
	switch d := body.Data; {
	case d.Error != nil:
		return Answer{}, &RemoteError{Reason: "Error", Message: *d.Error}
	case d.TooNew != nil:
		a.Kind, a.From, a.To, a.LastEventID = TooNew, d.TooNew.From, d.TooNew.To, d.TooNew.Newest
		return a, nil
	case d.InvalidRange != nil:
		a.Kind, a.From, a.To = InvalidRange, d.InvalidRange.From, d.InvalidRange.To
		return a, nil
	case d.TreeDump != nil:
		a.Kind, from = TreeDump, d.TreeDump
	default:
		a.Kind = Events
	}
	a.LastEventID = from.Last
	for _, e := range from.Events {
		n := kvevent.Event{WorkerID: e.WorkerID, Rank: e.Event.Rank, ID: e.Event.ID, Kind: kvevent.Stored, Residency: e.Residency}
		if e.Tier != "device" {
			t.Fatalf("recorded tier %q", e.Tier)
		}
		if p := e.Event.Data.Stored.Parent; p != nil {
			n.Parent, n.HasParent = kvevent.EngineHash(*p), true
		}
		for _, b := range e.Event.Data.Stored.Blocks {
			n.Blocks = append(n.Blocks, kvevent.Block{Engine: kvevent.EngineHash(b.Engine), Hash: block.Hash(b.Tokens)})
		}
		a.Events = append(a.Events, n)
	}
	return a, nil
}

// TestReplay plays every recorded exchange with a worker that sends the recorded
// bytes, to a client with the recorded ids and addresses.
func TestReplay(t *testing.T) {
	kinds := map[Kind]int{}
	eachRecording(t, func(t *testing.T, s Source, r *recording) {
		c := startClient(t, Config{Advertise: r.heard.info.Address})
		c.newID = func() (string, error) { return r.heard.info.Context, nil }
		requests := make(chan []byte, 1)
		closed := make(chan error, 1)
		w := startWorker(t, func(_ context.Context, conn net.Conn, h heardRequest) {
			requests <- h.raw
			say(conn, r.Ack)
			// Not to the recorded address, where nobody listens now.
			back := dial(t, c.listener.Addr().String(), r.Response)
			if back == nil {
				return
			}
			defer back.Close()
			_, err := back.Read(make([]byte, 1))
			closed <- err
		})
		target := s.Target
		target.Address = w.l.Addr().String()
		got, err := c.Query(t.Context(), target, r.request())
		want, wantErr := expected(t, r)
		if wantErr != nil {
			remote, ok := errors.AsType[*RemoteError](err)
			if !ok || *remote != *wantErr {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
		} else {
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-recorded +ours):\n%s", diff)
			}
			kinds[got.Kind]++
			// An orderly end: nothing sent, all read.
			if err := <-closed; !errors.Is(err, io.EOF) {
				t.Errorf("the worker's connection ended with %v", err)
			}
			if s := c.Stats(); s.Queries != 1 || s.Failed != 0 || s.DialBacks != 1 || s.Bytes != want.Bytes {
				t.Errorf("stats %+v", s)
			}
		}
		if request := <-requests; ownOrder(r) && !bytes.Equal(request, recordedRequest(r)) {
			t.Errorf("request (-recorded +ours):\n%s", cmp.Diff(r.Request, request))
		}
	})
	if want := (map[Kind]int{TreeDump: 2, Events: 6, InvalidRange: 2, TooNew: 2}); !cmp.Equal(want, kinds) {
		t.Errorf("recorded %v, want %v", kinds, want)
	}
}

// TestCutAnswers cuts every recorded stream at every byte: an answer is whole or
// an error.
func TestCutAnswers(t *testing.T) {
	eachRecording(t, func(t *testing.T, s Source, r *recording) {
		greeting, err := readFrame(bytes.NewReader(r.Response), maxHeader, 0)
		must(t, err)
		stream := r.Response[greeting.size():]
		whole := len(stream) - (frameHead + len(controlEnd))
		for cut := range len(stream) + 1 {
			p := &parser{target: s.Target, request: r.request()}
			err := readAnswer(bytes.NewReader(stream[:cut]), p, 1<<20)
			_, remote := errors.AsType[*RemoteError](err)
			switch {
			case remote:
			case cut < whole && !errors.Is(err, io.ErrUnexpectedEOF):
				t.Fatalf("cut at %d of %d: %v", cut, len(stream), err)
			case cut >= whole && err != nil:
				t.Fatalf("cut at %d of %d, after the answer: %v", cut, len(stream), err)
			}
		}
		// A limit of one byte less than the answer is too little.
		p := &parser{target: s.Target, request: r.request()}
		if err := readAnswer(bytes.NewReader(stream), p, int64(whole)-1); p.complete || err == nil {
			t.Errorf("an answer of %d bytes passes a limit of %d", whole, whole-1)
		}
	})
}
