package extproc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// decisionOf returns the change to the request that a reply carries, from
// whichever phase it answers.
func decisionOf(t *testing.T, r *response) *extprocv3.CommonResponse {
	t.Helper()
	c := r.GetRequestHeaders().GetResponse()
	if r.GetRequestBody() != nil {
		c = r.GetRequestBody().GetResponse()
	}
	if c.GetHeaderMutation() == nil {
		t.Fatalf("got %q, want a decision", describe(r))
	}
	return c
}

// setHeaders returns the headers that a reply sets. All must be set in a way
// that replaces copies, and in raw_value (envoy.md section 3).
func setHeaders(t *testing.T, r *response) map[string]string {
	t.Helper()
	set := map[string]string{}
	for _, o := range decisionOf(t, r).GetHeaderMutation().GetSetHeaders() {
		name := o.GetHeader().GetKey()
		if _, twice := set[name]; twice {
			t.Errorf("header %s is set twice", name)
		}
		if o.GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD || o.GetHeader().GetValue() != "" {
			t.Errorf("header %s is set by %v with value %q beside raw_value", name, o.GetAppendAction(), o.GetHeader().GetValue())
		}
		set[name] = string(o.GetHeader().GetRawValue())
	}
	return set
}

// destination returns where a reply sends the request, in header and metadata.
func destination(t *testing.T, r *response) string {
	t.Helper()
	header := setHeaders(t, r)["x-gateway-destination-endpoint"]
	spaces := r.GetDynamicMetadata().GetFields()
	fields := spaces["envoy.lb"].GetStructValue().GetFields()
	if len(spaces) != 1 || len(fields) != 1 {
		t.Errorf("metadata %v", r.GetDynamicMetadata())
	}
	if text := fields["x-gateway-destination-endpoint"].GetStringValue(); text != header {
		t.Errorf("header says %q, metadata says %q", header, text)
	}
	return header
}

func TestDestination(t *testing.T) {
	for _, endpoint := range []string{"10.0.0.1:8000", "[2001:db8::1]:8000", "[::1]:1"} {
		for _, tc := range []struct {
			name string
			in   []*request
			at   int // the message whose answer carries the decision
		}{
			{"full duplex", []*request{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(prompt16, true)}, 2},
			{"trailers", []*request{duplexModes.first(headersMsg("POST", completions, false)), bodyMsg(prompt16, false), trailersMsg()}, 3},
			{"buffered", []*request{modes{modeBuffered, modeBuffered}.first(headersMsg("POST", completions, false)), bodyMsg(prompt16, true)}, 2},
			{"none", []*request{modes{}.first(headersMsg("POST", completions, false))}, 1},
			{"GET", []*request{duplexModes.first(headersMsg("GET", otherPath, true))}, 1},
			{"other path", []*request{duplexModes.first(headersMsg("POST", otherPath, false))}, 1},
		} {
			t.Run(endpoint+" "+tc.name, func(t *testing.T) {
				r := newRig(t, []fleet.Worker{worker(1, fleet.Aggregated, endpoint)})
				m := newMemory(t.Context(), tc.in...)
				if err := r.server.Process(m); err != nil {
					t.Fatal(err)
				}
				reply := m.out[tc.at][0]
				if got := destination(t, reply); got != endpoint {
					t.Errorf("destination %q", got)
				}
				if !decisionOf(t, reply).GetClearRouteCache() {
					t.Error("the route cache is not cleared")
				}
				for _, other := range m.all() {
					if other != m.out[tc.at][0] && other.GetDynamicMetadata() != nil {
						t.Errorf("metadata on %q too", describe(other))
					}
				}
			})
		}
	}
}

// TestHandoff: the exact headers of every kind of handoff with every kind of
// decision.
func TestHandoff(t *testing.T) {
	custom := Handoff{
		{"x-p-ep", PrefillEndpoint},
		{"x-p-id", PrefillInstanceID},
		{"x-p-rank", PrefillRank},
		{"x-d-ep", DecodeEndpoint},
		{"x-d-id", DecodeInstanceID},
		{"x-d-rank", DecodeRank},
		{"x-mode", RoutingMode},
		{"x-id", RequestID},
	}
	split := splitPool()[1:] // one prefill worker: 12
	split[0].Rank = 2
	prefillSubset := structpb.NewStringValue("10.0.2.1:8000") // the decode worker alone
	dynamoDecode := func(mode, id, rank string) map[string]string {
		return map[string]string{
			"x-worker-instance-id": id, "x-dynamo-worker-instance-id": id,
			"x-dp-rank": rank, "x-dynamo-dp-rank": rank,
			"x-dynamo-routing-mode": mode, "x-dynamo-request-id": requestID,
		}
	}
	dynamoSplit := dynamoDecode("disaggregated", "21", "3")
	maps.Copy(dynamoSplit, map[string]string{
		"x-prefill-instance-id": "12", "x-dynamo-prefill-instance-id": "12",
		"x-prefill-dp-rank": "2", "x-dynamo-prefill-dp-rank": "2",
	})
	for _, tc := range []struct {
		handoff  string
		headers  Handoff
		decision string
		workers  []fleet.Worker
		subset   *structpb.Value
		want     map[string]string // beside the destination
	}{
		{"default", DefaultHandoff(), "disaggregated", split, nil, map[string]string{"x-prefiller-host-port": "10.0.1.2:8000"}},
		{"default", DefaultHandoff(), "aggregated", aggregatedPool(), nil, nil},
		{"default", DefaultHandoff(), "no_prefill_ready", decodePool(), nil, nil},
		{"default", DefaultHandoff(), "no_prefill_in_subset", split, prefillSubset, nil},
		{"dynamo", DynamoHandoff(), "disaggregated", split, nil, dynamoSplit},
		{"dynamo", DynamoHandoff(), "aggregated", aggregatedPool(), nil, dynamoDecode("aggregated", "31", "0")},
		{"dynamo", DynamoHandoff(), "no_prefill_ready", decodePool(), nil, dynamoDecode("aggregated", "21", "3")},
		{"dynamo", DynamoHandoff(), "no_prefill_in_subset", split, prefillSubset, dynamoDecode("aggregated", "21", "3")},
		{"custom", custom, "disaggregated", split, nil, map[string]string{
			"x-p-ep": "10.0.1.2:8000", "x-p-id": "12", "x-p-rank": "2",
			"x-d-ep": "10.0.2.1:8000", "x-d-id": "21", "x-d-rank": "3", "x-mode": "disaggregated", "x-id": requestID,
		}},
		{"custom", custom, "aggregated", aggregatedPool(), nil, map[string]string{
			"x-d-ep": "10.0.3.1:8000", "x-d-id": "31", "x-d-rank": "0", "x-mode": "aggregated", "x-id": requestID,
		}},
		{"custom", custom, "no_prefill_ready", decodePool(), nil, map[string]string{
			"x-d-ep": "10.0.2.1:8000", "x-d-id": "21", "x-d-rank": "3", "x-mode": "aggregated", "x-id": requestID,
		}},
		{"none", nil, "disaggregated", split, nil, nil},
		{"none", nil, "aggregated", aggregatedPool(), nil, nil},
	} {
		t.Run(tc.handoff+" "+tc.decision, func(t *testing.T) {
			l := startRig(t, tc.workers, func(c *Config) { c.Handoff = tc.headers })
			e := l.open(t)
			head := headersMsg("POST", completions, false)
			if tc.subset != nil {
				withSubset(head, tc.subset)
			}
			reply := e.routed(head, prompt16)
			decode := tc.workers[len(tc.workers)-1]
			want := map[string]string{"x-gateway-destination-endpoint": decode.Endpoint.String()}
			maps.Copy(want, tc.want)
			if got := setHeaders(t, reply); !maps.Equal(got, want) {
				t.Errorf("headers %v, want %v", got, want)
			}
			if remove := decisionOf(t, reply).GetHeaderMutation().GetRemoveHeaders(); len(remove) != 0 {
				t.Errorf("removes %v, which nobody sent", remove)
			}
			if n := l.metric(t, "warmpath_decisions_total", "mode", tc.decision); n != 1 {
				t.Errorf("the decision was not counted as %s", tc.decision)
			}
		})
	}
}

// TestRequestIDsDiffer: the id is new for every request.
func TestRequestIDsDiffer(t *testing.T) {
	r := newRig(t, splitPool(), func(c *Config) { c.RequestID, c.Handoff = nil, DynamoHandoff() })
	seen := map[string]bool{}
	for range 10 {
		m := newMemory(t.Context(), duplexModes.first(headersMsg("GET", otherPath, true)))
		if err := r.server.Process(m); err != nil {
			t.Fatal(err)
		}
		id := setHeaders(t, m.out[1][0])["x-dynamo-request-id"]
		if len(id) != 36 || id[14] != '4' {
			t.Errorf("id %q is no random UUID", id)
		}
		seen[id] = true
	}
	if len(seen) != 10 {
		t.Errorf("10 requests have %d ids", len(seen))
	}
}

// routingNames are all headers that no client may send: those of the protocol
// (endpoint-picker.md 1.2), of llm-d's sidecar (engines.md 3.2;
// endpoint-picker.md 6.1) and of both generations of Dynamo (dynamo.md 5.2).
var routingNames = []string{
	"x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset",
	"x-gateway-destination-endpoint-served", "x-gateway-destination-endpoint-scores",
	"x-prefiller-host-port", "x-encoder-hosts-ports", "x-kv-cache-source-host-port",
	"x-data-parallel-host-port", "x-data-parallel-rank", "x-bypass-remote-prefill",
	"x-worker-instance-id", "x-dynamo-worker-instance-id", "x-dp-rank", "x-dynamo-dp-rank",
	"x-prefill-instance-id", "x-dynamo-prefill-instance-id", "x-prefill-dp-rank", "x-dynamo-prefill-dp-rank",
	"x-dynamo-routing-mode", "x-dynamo-request-id",
}

// mutate applies a header mutation as a gateway does: names have no case. It
// reports a name that is both set and removed, where the order would decide.
func mutate(t *testing.T, headers []*corev3.HeaderValue, m *extprocv3.HeaderMutation) map[string][]string {
	t.Helper()
	result := map[string][]string{}
	for _, h := range headers {
		name := strings.ToLower(h.Key)
		result[name] = append(result[name], headerValue(h))
	}
	removed := map[string]bool{}
	for _, name := range m.GetRemoveHeaders() {
		name = strings.ToLower(name)
		removed[name] = true
		delete(result, name)
	}
	for _, o := range m.GetSetHeaders() {
		name := strings.ToLower(o.GetHeader().GetKey())
		if removed[name] {
			t.Errorf("header %s is set and removed", name)
		}
		result[name] = []string{string(o.GetHeader().GetRawValue())}
	}
	return result
}

// TestClientsCannotSteer: whatever routing headers a client sends, and however,
// only ours reach the worker.
func TestClientsCannotSteer(t *testing.T) {
	custom := Handoff{{"x-my-prefill", PrefillEndpoint}}
	const evil = "203.0.113.66:1"
	forms := map[string]func(name string) []*corev3.HeaderValue{
		"once":  func(n string) []*corev3.HeaderValue { return headerMap(n, evil).Headers },
		"twice": func(n string) []*corev3.HeaderValue { return headerMap(n, evil, n, evil).Headers },
		"as value": func(n string) []*corev3.HeaderValue {
			return []*corev3.HeaderValue{{Key: n, Value: evil}}
		},
		"empty":      func(n string) []*corev3.HeaderValue { return headerMap(n, "").Headers },
		"upper case": func(n string) []*corev3.HeaderValue { return headerMap(strings.ToUpper(n), evil).Headers },
		"mixed case": func(n string) []*corev3.HeaderValue { return headerMap("X"+n[1:], evil, n, evil).Headers },
	}
	for handoffName, handoff := range map[string]Handoff{"default": DefaultHandoff(), "dynamo": DynamoHandoff(), "custom": custom, "none": nil} {
		for poolName, workers := range map[string][]fleet.Worker{"split": splitPool(), "aggregated": aggregatedPool(), "decode only": decodePool()} {
			for form, headers := range forms {
				t.Run(fmt.Sprintf("%s, %s, %s", handoffName, poolName, form), func(t *testing.T) {
					r := newRig(t, workers, func(c *Config) { c.Handoff = handoff })
					names := slices.Clone(routingNames)
					for _, h := range handoff {
						names = append(names, h.Name)
					}
					head := headersMsg("POST", completions, false, "x-keep", "kept")
					list := head.GetRequestHeaders().GetHeaders()
					for _, name := range names {
						list.Headers = append(list.Headers, headers(name)...)
					}
					m := newMemory(t.Context(), duplexModes.first(head), bodyMsg(prompt16, true))
					if err := r.server.Process(m); err != nil {
						t.Fatal(err)
					}
					reply := m.out[2][0]
					ours := setHeaders(t, reply)
					after := mutate(t, list.Headers, decisionOf(t, reply).GetHeaderMutation())
					for _, name := range names {
						want := []string(nil)
						if value, ok := ours[name]; ok {
							want = []string{value}
						}
						if !slices.Equal(after[name], want) {
							t.Errorf("%s reaches the worker as %q, want %q", name, after[name], want)
						}
					}
					for name, value := range map[string]string{"x-keep": "kept", "x-request-id": "1", ":path": completions, "content-type": "application/json"} {
						if !slices.Equal(after[name], []string{value}) {
							t.Errorf("%s was changed to %q", name, after[name])
						}
					}
				})
			}
		}
	}
}
