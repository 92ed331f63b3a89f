package extproc

import (
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
)

// TestGuessLastsAsLongAsTheRequestWaits: a worker is expected to hold a prompt for as
// long as that waits there, and for the TTL after the first output or the end.
func TestGuessLastsAsLongAsTheRequestWaits(t *testing.T) {
	const ttl, picked, other = time.Second, "10.0.3.1:8000", "10.0.3.2:8000"
	for name, end := range map[string]func(*live, *envoy){
		"the first output": func(_ *live, e *envoy) {
			e.send(answerHeadersMsg("200", false))
			e.send(answerBodyMsg("data", false))
			e.want("response headers", "response body 4")
		},
		"the client is gone": func(l *live, e *envoy) {
			e.cancel()
			l.waitIdle(e.t)
		},
		"the worker refuses": func(_ *live, e *envoy) {
			e.send(withServed(answerHeadersMsg("503", false), picked))
			e.want("response headers")
		},
		"another worker serves": func(_ *live, e *envoy) {
			e.send(withServed(answerHeadersMsg("200", false), other))
			e.want("response headers")
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			var passed atomic.Int64
			l := startRig(t, aggregates(2), func(c *Config) {
				c.Now = func() time.Time { return start.Add(time.Duration(passed.Load())) }
			})
			picker := pick.New(l.index, index.NewSpeculation(ttl), l.load, blockSize)
			if err := picker.SetFleet(l.picker.Fleet()); err != nil {
				t.Fatal(err)
			}
			if err := l.server.Use(Routing{Picker: picker, Layout: block.Layout{Size: blockSize}, Handoff: DefaultHandoff()}); err != nil {
				t.Fatal(err)
			}
			req := pick.Request{Tokens: 16, Chains: l.chains(count(1, 16))}
			expected := func(after time.Duration, want int) {
				t.Helper()
				if got := picker.Best(&req, start.Add(after), &pick.Scratch{}); got != want {
					t.Errorf("after %v: %d blocks are expected, want %d", after, got, want)
				}
			}
			e := l.open(t)
			e.routed(withSubset(headersMsg("POST", completions, false), structpb.NewStringValue(picked)), prompt16)
			expected(60*ttl, 4)
			passed.Store(int64(60 * ttl))
			end(l, e)
			expected(61*ttl-1, 4)
			expected(61*ttl, 0)
			e.cancel()
			l.waitIdle(t)
			expected(61*ttl, 0)
		})
	}
}

// chains are those of a prompt's full blocks.
func (r *rig) chains(tokens []uint32) []block.Chain {
	layout := r.server.routing.Load().Layout
	return block.AppendChains(nil, layout.AppendHashes(nil, tokens, block.NewSeed("", "")))
}
