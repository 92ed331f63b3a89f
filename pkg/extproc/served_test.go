package extproc

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestServedElsewhere: what a gateway says of who served is compared with the
// decision; one that says nothing counts for nothing.
func TestServedElsewhere(t *testing.T) {
	metadata := func(value string) func(*request) {
		return func(r *request) {
			r.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {Fields: map[string]*structpb.Value{
				"x-gateway-destination-endpoint-served": structpb.NewStringValue(value),
				"x-gateway-destination-endpoint":        structpb.NewStringValue("10.0.3.1:8000"),
			}}}}
		}
	}
	attribute := func(value string) func(*request) {
		return func(r *request) {
			r.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{
				"upstream.address": structpb.NewStringValue(value),
			}}}
		}
	}
	for name, tc := range map[string]struct {
		say  []func(*request)
		want uint64
	}{
		"nothing":                        {nil, 0},
		"the picked one":                 {[]func(*request){metadata("10.0.3.1:8000")}, 0},
		"the picked one, mapped":         {[]func(*request){metadata("[::ffff:10.0.3.1]:8000")}, 0},
		"another":                        {[]func(*request){metadata("10.0.3.2:8000")}, 1},
		"another port":                   {[]func(*request){metadata("10.0.3.1:8001")}, 1},
		"another, as an attribute":       {[]func(*request){attribute("[2001:db8::1]:8000")}, 1},
		"the picked one as an attribute": {[]func(*request){attribute("10.0.3.1:8000")}, 0},
		"both, metadata first":           {[]func(*request){metadata("10.0.3.1:8000"), attribute("10.0.3.9:8000")}, 0},
		"no address":                     {[]func(*request){metadata("fail: none")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, aggregatedPool())
			answer := answerHeadersMsg("200", true)
			for _, f := range tc.say {
				f(answer)
			}
			m := newMemory(t.Context(), duplexModes.first(headersMsg("GET", otherPath, true)), answer)
			if err := r.server.Process(m); err != nil {
				t.Fatal(err)
			}
			if got := r.server.Counts().ServedElsewhere; got != tc.want {
				t.Errorf("counted %d, want %d", got, tc.want)
			}
			if got := r.metric(t, "warmpath_served_elsewhere_total"); got != float64(tc.want) {
				t.Errorf("the metric says %v, want %d", got, tc.want)
			}
		})
	}
}

// TestServedElsewhereIsSaid at most once a minute, with both endpoints.
func TestServedElsewhereIsSaid(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRig(t, aggregatedPool(), func(c *Config) { c.Now = func() time.Time { return now } })
	answer := answerHeadersMsg("200", true)
	answer.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{
		"upstream.address": structpb.NewStringValue("10.0.3.2:8000"),
	}}}
	for i, tc := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {59 * time.Second, 1}, {time.Second, 2}, {time.Second, 2}} {
		now = now.Add(tc.after)
		if err := r.server.Process(newMemory(t.Context(), duplexModes.first(headersMsg("GET", otherPath, true)), answer)); err != nil {
			t.Fatal(err)
		}
		if got := r.log.count("picked=10.0.3.1:8000 served=10.0.3.2:8000"); got != tc.want {
			t.Errorf("request %d: %d lines, want %d\n%s", i, got, tc.want, r.log)
		}
	}
	if got := r.server.Counts().ServedElsewhere; got != 4 {
		t.Errorf("counted %d, want 4", got)
	}
}

// TestCounts: what a status is made of.
func TestCounts(t *testing.T) {
	r := newRig(t, aggregatedPool())
	for _, in := range [][]*request{
		{duplexModes.first(headersMsg("GET", otherPath, true))},                                                             // no prompt
		{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(tokenBody(count(1, 8), ""), true)},              // known: 2 blocks
		{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(`{"model":"m","prompt":"no tokenizer"}`, true)}, // unknown
		{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(`{"model":"m"`, true)},                          // refused
		{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(tokenBody(count(1, 12), ""), true)},             // of 3 blocks, 2 are guessed
		{duplexModes.first(headersMsg("POST", "/v1/embeddings", false)), bodyMsg(`{"model":"m","input":"not read"}`, true)}, // no prompt that is read
	} {
		if err := r.server.Process(newMemory(t.Context(), in...)); err != nil {
			t.Fatal(err)
		}
	}
	want := Counts{Decisions: 5, Prompts: 3, KnownPrompts: 2, TotalBlocks: 5, MatchedBlocks: 2, BestBlocks: 2}
	if got := r.server.Counts(); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}
