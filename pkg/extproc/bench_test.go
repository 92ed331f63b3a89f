package extproc

import (
	"context"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// replayed is a stream in memory that keeps no replies.
type replayed struct {
	grpc.ServerStream // nil: nothing else is called
	ctx               context.Context
	in                []*request
	at, replies       int
}

func (r *replayed) Context() context.Context { return r.ctx }

func (r *replayed) Recv() (*request, error) {
	if r.at == len(r.in) {
		return nil, io.EOF
	}
	r.at++
	return r.in[r.at-1], nil
}

func (r *replayed) Send(*response) error {
	r.replies++
	return nil
}

// bodyOfSize is a completion request with token ids, size bytes or a little more.
func bodyOfSize(size int) string {
	ids := []uint32{}
	for n := 0; n < size; n += 7 {
		ids = append(ids, uint32(100_000+len(ids)))
	}
	return tokenBody(ids, "")
}

// BenchmarkProcess is one request from headers to the end of a short streamed
// response, without gRPC: 64 workers, a prompt of token ids in chunks of 16 KiB.
func BenchmarkProcess(b *testing.B) {
	var workers []fleet.Worker
	for i := range 64 {
		role := fleet.Prefill
		if i%2 == 1 {
			role = fleet.Decode
		}
		workers = append(workers, worker(uint64(i+1), role, fmt.Sprintf("10.0.0.%d:8000", i+1)))
	}
	for _, kib := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) {
			r := newRig(b, workers, func(c *Config) { c.Layout.Size = 16 })
			body := bodyOfSize(kib << 10)
			in := []*request{duplexModes.first(headersMsg("POST", completions, false, "content-length", fmt.Sprint(len(body))))}
			for rest := body; rest != ""; {
				n := min(16<<10, len(rest))
				in = append(in, bodyMsg(rest[:n], false))
				rest = rest[n:]
			}
			in = append(in, bodyMsg("", true), answerHeadersMsg("200", false))
			for range 4 {
				in = append(in, answerBodyMsg("data: {\"choices\":[]}\n\n", false))
			}
			in = append(in, answerBodyMsg("", true))
			stream := &replayed{ctx: b.Context(), in: in}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				stream.at, stream.replies = 0, 0
				if err := r.server.Process(stream); err != nil {
					b.Fatal(err)
				}
				if stream.replies < 8 {
					b.Fatalf("%d replies", stream.replies)
				}
			}
		})
	}
}
