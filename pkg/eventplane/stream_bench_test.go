package eventplane

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamMessages = 100_000
	streamSize     = 4 << 10
)

// streamWays are the ways to read a stream: ours, and what the library has.
var streamWays = map[string]func(ctx context.Context, b *testing.B, s *stream, deliver func(data []byte)){
	"ours": func(ctx context.Context, b *testing.B, s *stream, deliver func([]byte)) {
		err := s.consume(ctx, 0, func(m *nats.Msg, _ uint64, _ time.Time) { deliver(m.Data) }, func(uint64) {})
		if ctx.Err() == nil {
			b.Error(err)
		}
	},
	"consume": func(ctx context.Context, b *testing.B, s *stream, deliver func([]byte)) {
		c, err := s.js.OrderedConsumer(ctx, s.name, jetstream.OrderedConsumerConfig{})
		if err != nil {
			b.Error(err)
			return
		}
		cc, err := c.Consume(func(m jetstream.Msg) { deliver(m.Data()) }, jetstream.PullMaxMessages(5000))
		if err != nil {
			b.Error(err)
			return
		}
		<-ctx.Done()
		cc.Stop()
		<-cc.Closed()
	},
	"fetch": func(ctx context.Context, b *testing.B, s *stream, deliver func([]byte)) {
		c, err := s.js.CreateConsumer(ctx, s.name, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true})
		if err != nil {
			b.Error(err)
			return
		}
		for ctx.Err() == nil {
			batch, err := c.Fetch(5000, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				continue
			}
			for m := range batch.Messages() {
				deliver(m.Data())
			}
		}
	},
}

// BenchmarkStreamRead: messages of 4 KiB from memory, to a listener that does
// nothing.
func BenchmarkStreamRead(b *testing.B) {
	address, _, _ := startJetStream(b, anyPort, b.TempDir())
	cfg := kvStream()
	cfg.Storage = jetstream.MemoryStorage
	s := mustOpen(b, persistent(b, address), cfg)
	publisher := persistent(b, address)
	body := make([]byte, streamSize)
	for range streamMessages {
		publish(b, publisher, componentSubject, body)
	}
	if err := publisher.FlushTimeout(30 * time.Second); err != nil {
		b.Fatal(err)
	}
	s.holds(b, streamMessages)
	for name, read := range streamWays {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n, all := 0, make(chan struct{})
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					read(ctx, b, s, func([]byte) {
						if n++; n == streamMessages {
							close(all)
						}
					})
				}()
				<-all
				cancel()
				<-ended
			}
			b.ReportMetric(streamMessages*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// BenchmarkStreamLatency: from publishing to delivery, one message at a time.
func BenchmarkStreamLatency(b *testing.B) {
	for name, read := range streamWays {
		b.Run(name, func(b *testing.B) {
			address, _, _ := startJetStream(b, anyPort, b.TempDir())
			cfg := kvStream()
			cfg.Storage = jetstream.MemoryStorage
			s := mustOpen(b, persistent(b, address), cfg)
			publisher := persistent(b, address)
			took := make(chan time.Duration, 1)
			start := time.Now()
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				read(ctx, b, s, func(data []byte) { took <- time.Since(start) - time.Duration(binary.LittleEndian.Uint64(data)) })
			}()
			var all []time.Duration
			body := make([]byte, streamSize)
			for b.Loop() {
				binary.LittleEndian.PutUint64(body, uint64(time.Since(start)))
				publish(b, publisher, componentSubject, body)
				all = append(all, <-took)
			}
			cancel()
			<-ended
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-us")
			b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-us")
		})
	}
}
