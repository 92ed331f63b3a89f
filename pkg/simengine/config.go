package simengine

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// Timing says how long work takes. The zero value means no time at all.
type Timing struct {
	// PrefillTokensPerSecond is how many uncached prompt tokens a worker computes
	// per second, one request after another. Zero takes no time.
	PrefillTokensPerSecond float64
	// DecodePerToken is the time between two tokens of one answer.
	DecodePerToken time.Duration
	// TransferBytesPerToken and TransferBandwidth (bytes per second) give the time
	// to move KV blocks from a prefill worker. The move overlaps the prefill: only
	// what exceeds the prefill's time is waited for. Zero bandwidth takes no time.
	TransferBytesPerToken float64
	TransferBandwidth     float64
	// TransferFixed is waited for once per transfer, whatever its size.
	TransferFixed time.Duration
	// Speedup divides every time. Zero means 1.
	Speedup float64
}

// Config describes one simulated worker. Zero values mean what the fields say.
type Config struct {
	// Name is the pod name. Required.
	Name string
	// WorkerID identifies the worker in events. Zero means [fleet.WorkerID] of Name.
	WorkerID uint64
	// Rank is the data-parallel rank.
	Rank uint32
	// Listen is the host:port of the HTTP server; port 0 takes a free one. Empty
	// means 127.0.0.1:0.
	Listen string
	// Role decides the component, whether events are published (decode workers
	// never do) and which requests count as misdirected.
	Role fleet.Role
	// Model is the one model's name. Required.
	Model string
	// BlockSize is the tokens per block. Zero means 16.
	BlockSize int
	// Blocks is the KV cache's capacity in blocks. Zero means 1024.
	Blocks int
	// MaxModelLen is the most tokens of prompt and answer together. Zero means as
	// many as the KV cache holds; more than that is refused.
	MaxModelLen int

	// NATS is the connection that events go out on; it stays open. With a nil NATS
	// the worker connects to NATSURL itself and keeps trying while it runs. With
	// neither it serves as well and nobody hears of its cache.
	NATS    *nats.Conn
	NATSURL string
	// Namespace, Component and Endpoint name the worker in subjects. Empty means
	// "dynamo", "prefill" or "backend" by Role, and "generate".
	Namespace, Component, Endpoint string
	// Generation is the release whose event format is spoken.
	Generation dynamo.Generation

	// Resolve returns the host:port of a prefill worker named by id and rank in
	// Dynamo's headers. Nil refuses requests that name one that way.
	Resolve func(id uint64, rank uint32) (addr string, ok bool)

	// Tokenize returns the token ids of a request's prompt, instead of the tiny
	// tokenizer that has a token for every byte. Its error is shown to the client.
	Tokenize func(kind prompt.Kind, body []byte) ([]uint32, error)

	// Metrics is whose names GET /metrics uses. Zero means vLLM's.
	Metrics MetricNames

	Timing Timing
	// Now tells the time that events and answers are stamped with; nil means
	// [time.Now].
	Now func() time.Time
	// Log gets state changes. Nil discards them.
	Log *slog.Logger
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Name != "", "name: set the pod name")
	check(c.Model != "", "model: set the name that requests use")
	check(c.Role <= fleet.Decode, "role: %d is none of Aggregated, Prefill, Decode", c.Role)
	check(c.Metrics <= TRTLLMMetrics, "metrics: %d is none of vLLM's, SGLang's, trtllm-serve's", c.Metrics)
	check(c.BlockSize > 0, "block size: %d is not positive", c.BlockSize)
	check(c.Blocks > 0, "blocks: %d is not positive", c.Blocks)
	check(c.MaxModelLen > 0, "max model len: %d is not positive", c.MaxModelLen)
	check(c.BlockSize < 1 || c.Blocks < 1 || c.MaxModelLen <= c.Blocks*c.BlockSize,
		"max model len: %d is more than the KV cache's %d blocks of %d tokens hold", c.MaxModelLen, c.Blocks, c.BlockSize)
	switch c.Generation {
	case dynamo.Gen12, dynamo.Gen14, dynamo.Gen15:
	default:
		check(false, "generation: %v has no event format here", c.Generation)
	}
	t := c.Timing
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"prefill tokens per second", t.PrefillTokensPerSecond},
		{"decode per token", float64(t.DecodePerToken)},
		{"transfer bytes per token", t.TransferBytesPerToken},
		{"transfer bandwidth", t.TransferBandwidth},
		{"transfer fixed", float64(t.TransferFixed)},
		{"speedup", t.Speedup},
	} {
		check(f.value >= 0 && !math.IsInf(f.value, 1), "%s: %v is not a number from 0 up", f.name, f.value)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.WorkerID == 0 {
		c.WorkerID = fleet.WorkerID(c.Name)
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.BlockSize == 0 {
		c.BlockSize = 16
	}
	if c.Blocks == 0 {
		c.Blocks = 1024
	}
	if c.MaxModelLen == 0 {
		c.MaxModelLen = c.Blocks * c.BlockSize
	}
	if c.Namespace == "" {
		c.Namespace = "dynamo"
	}
	if c.Component == "" {
		c.Component = "backend"
		if c.Role == fleet.Prefill {
			c.Component = "prefill"
		}
	}
	if c.Endpoint == "" {
		c.Endpoint = "generate"
	}
	if c.Timing.Speedup == 0 {
		c.Timing.Speedup = 1
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// prefill returns how long the computation of tokens takes.
func (t Timing) prefill(tokens int) time.Duration {
	if t.PrefillTokensPerSecond == 0 {
		return 0
	}
	return t.scaled(float64(tokens) / t.PrefillTokensPerSecond * float64(time.Second))
}

// transfer returns how long is waited for the KV blocks of tokens, when their
// prefill computed uncached tokens meanwhile.
func (t Timing) transfer(tokens, uncached int) time.Duration {
	wait := t.scaled(float64(t.TransferFixed))
	if t.TransferBandwidth == 0 {
		return wait
	}
	move := t.scaled(float64(tokens) * t.TransferBytesPerToken / t.TransferBandwidth * float64(time.Second))
	return wait + max(0, move-t.prefill(uncached))
}

// decode returns how long after the first token of an answer its i-th comes.
func (t Timing) decode(i int) time.Duration {
	return t.scaled(float64(t.DecodePerToken) * float64(i))
}

func (t Timing) scaled(nanos float64) time.Duration {
	return time.Duration(nanos / t.Speedup)
}
