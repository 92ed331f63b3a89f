package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	connections  = 2 // Envoy keeps one per worker thread
	requestBytes = 16 << 10
)

// measured is one closed-loop run: every stream sends its next request when the
// one before has ended.
type measured struct {
	latencies []time.Duration // first send to the decision
	elapsed   time.Duration
}

func (m *measured) percentile(p float64) time.Duration {
	slices.Sort(m.latencies)
	if len(m.latencies) == 0 {
		return 0
	}
	return m.latencies[min(len(m.latencies)-1, int(p*float64(len(m.latencies))))]
}

// client drives ext-proc as a gateway does.
type client struct {
	conns []*grpc.ClientConn
}

func dial(address string) (*client, error) {
	c := &client{}
	for range connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *client) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// run sends requests on n streams at once for about d.
func (c *client) run(ctx context.Context, w *workload, n int, d time.Duration) (*measured, error) {
	out := &measured{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), uint64(start.UnixNano())))
			service := extprocv3.NewExternalProcessorClient(c.conns[i%len(c.conns)])
			var body []byte
			var mine []time.Duration
			var err error
			for err == nil && time.Since(start) < d {
				body = w.appendBody(body[:0], random.IntN(conversations), random)
				var took time.Duration
				if took, err = request(ctx, service, body); err == nil {
					mine = append(mine, took)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			out.latencies = append(out.latencies, mine...)
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	out.elapsed = time.Since(start)
	return out, failed
}

// request sends one request and returns how long the decision took.
func request(ctx context.Context, service extprocv3.ExternalProcessorClient, body []byte) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // as Envoy ends a stream
	start := time.Now()
	stream, err := service.Process(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(requestHeaders); err != nil {
		return 0, err
	}
	for rest := body; len(rest) > 0; {
		n := min(len(rest), requestBytes)
		if err := stream.Send(requestChunk(rest[:n], false)); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	if err := stream.Send(requestChunk(nil, true)); err != nil {
		return 0, err
	}
	var took time.Duration
	for got := 0; ; {
		m, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		switch r := m.GetResponse().(type) {
		case *extprocv3.ProcessingResponse_RequestHeaders:
			took = time.Since(start)
			if set := r.RequestHeaders.GetResponse().GetHeaderMutation().GetSetHeaders(); len(set) == 0 || set[0].GetHeader().GetKey() != destination {
				return 0, errors.New("the picker named no destination")
			}
			continue
		case *extprocv3.ProcessingResponse_RequestBody:
			chunk := r.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			got += len(chunk.GetBody())
			if !chunk.GetEndOfStream() {
				continue
			}
		default:
			return 0, fmt.Errorf("the picker answered %v", m)
		}
		if got != len(body) {
			return 0, fmt.Errorf("%d of %d body bytes came back", got, len(body))
		}
		break
	}
	return took, respond(stream)
}

// respond plays the response: headers and one chunk of output.
func respond(stream extprocv3.ExternalProcessor_ProcessClient) error {
	for _, m := range []*extprocv3.ProcessingRequest{responseHeaders, responseBody} {
		if err := stream.Send(m); err != nil {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	return stream.CloseSend()
}
