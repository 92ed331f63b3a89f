package extproc

import (
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmpath/warmpath/pkg/fleet"
)

func listHint(parts ...any) *structpb.Value {
	l, err := structpb.NewList(parts)
	if err != nil {
		panic(err)
	}
	return structpb.NewListValue(l)
}

// subsetPool has a pod with two ports, one with IPv6, and another.
func subsetPool() []fleet.Worker {
	return []fleet.Worker{
		worker(1, fleet.Aggregated, "10.0.0.1:8000"),
		worker(2, fleet.Aggregated, "10.0.0.1:8001"),
		worker(3, fleet.Aggregated, "[2001:db8::1]:8000"),
		worker(4, fleet.Aggregated, "10.0.0.2:8000"),
	}
}

const (
	podA0 = "10.0.0.1:8000"
	podA1 = "10.0.0.1:8001"
	podV6 = "[2001:db8::1]:8000"
	podB  = "10.0.0.2:8000"
)

// TestSubset: the forms of the hint (endpoint-picker.md 1.4). Open requests push
// later ones to other workers, so that a few show all that may be chosen.
func TestSubset(t *testing.T) {
	for _, tc := range []struct {
		name string
		hint *structpb.Value
		want []string // nil: 503
	}{
		{"list of one", listHint(podA1), []string{podA1}},
		{"list", listHint(podA1, podV6), []string{podA1, podV6}},
		{"comma string", structpb.NewStringValue(podA1 + "," + podB), []string{podA1, podB}},
		{"comma string with spaces", structpb.NewStringValue(" " + podA1 + " , " + podB + " "), []string{podA1, podB}},
		{"list of comma strings", listHint(podA1+","+podB, podV6), []string{podA1, podB, podV6}},
		{"bare IP is every port", structpb.NewStringValue("10.0.0.1"), []string{podA0, podA1}},
		{"IPv6 with port", structpb.NewStringValue(podV6), []string{podV6}},
		{"IPv6 written long", structpb.NewStringValue("[2001:0db8:0:0::0001]:8000"), []string{podV6}},
		{"bare IPv6", structpb.NewStringValue("2001:db8::1"), []string{podV6}},
		{"bare IPv6 in brackets", structpb.NewStringValue("[2001:db8::1]"), []string{podV6}},
		{"IPv4 in IPv6", structpb.NewStringValue("[::ffff:10.0.0.2]:8000"), []string{podB}},
		{"garbage beside a good one", listHint("no address", 7.0, nil, true, "", "10.0.0.1:http", "10.0.0.1:99999", ":8000", podB), []string{podB}},
		{"unknown beside a good one", listHint("192.0.2.1:8000", podB), []string{podB}},
		{"another port", structpb.NewStringValue("10.0.0.2:8001"), nil},
		{"unknown", structpb.NewStringValue("192.0.2.1:8000"), nil},
		{"garbage", structpb.NewStringValue("no address"), nil},
		{"a host name", structpb.NewStringValue("localhost:8000"), nil},
		{"a number", structpb.NewNumberValue(8000), nil},
		{"empty list", listHint(), nil},
		{"empty string", structpb.NewStringValue(""), nil},
		{"commas", structpb.NewStringValue(",,"), nil},
		{"null", structpb.NewNullValue(), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := startRig(t, subsetPool())
			if tc.want == nil {
				e := l.open(t)
				e.send(duplexModes.first(withSubset(headersMsg("POST", completions, false), tc.hint)))
				e.send(bodyMsg(prompt16, true))
				checkImmediate(t, e.next(), 503, "service_unavailable", "no_endpoint_in_subset", "")
				return
			}
			var got []string
			for i := range tc.want { // of prompts that share nothing, so that no worker is better than another
				reply := l.open(t).routed(withSubset(headersMsg("POST", completions, false), tc.hint), tokenBody(count(uint32(1000*(i+1)), 16), ""))
				got = append(got, destination(t, reply))
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("chose %v, want %v", got, tc.want)
			}
		})
	}
}

// TestSubsetArrives on any message up to the decision; the last one counts.
func TestSubsetArrives(t *testing.T) {
	a, b := structpb.NewStringValue(podA0), structpb.NewStringValue(podB)
	none := listHint()
	headers := func() *request { return duplexModes.first(headersMsg("POST", completions, false)) }
	for _, tc := range []struct {
		name string
		in   []*request
		want string // empty: 503
	}{
		{"on the headers", []*request{withSubset(headers(), a), bodyMsg(prompt16, true)}, podA0},
		{"on the body", []*request{headers(), withSubset(bodyMsg(prompt16, true), b)}, podB},
		{"on the first chunk", []*request{headers(), withSubset(bodyMsg(prompt16, false), b), bodyMsg("", true)}, podB},
		{"on the trailers", []*request{headers(), bodyMsg(prompt16, false), withSubset(trailersMsg(), b)}, podB},
		{"twice", []*request{withSubset(headers(), a), withSubset(bodyMsg(prompt16, true), b)}, podB},
		{"twice, then empty", []*request{withSubset(headers(), a), withSubset(bodyMsg(prompt16, true), none)}, ""},
		{"empty, then not", []*request{withSubset(headers(), none), withSubset(bodyMsg(prompt16, true), a)}, podA0},
		{"buffered, on the body", []*request{modes{modeBuffered, modeNone}.first(headersMsg("POST", completions, false)), withSubset(bodyMsg(prompt16, true), b)}, podB},
		{"GET", []*request{duplexModes.first(withSubset(headersMsg("GET", otherPath, true), b))}, podB},
		{"no body", []*request{modes{}.first(withSubset(headersMsg("POST", completions, false), b))}, podB},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, subsetPool())
			m := newMemory(t.Context(), tc.in...)
			if err := r.server.Process(m); err != nil {
				t.Fatal(err)
			}
			for _, reply := range m.all() {
				if i := reply.GetImmediateResponse(); i != nil {
					if tc.want != "" {
						t.Errorf("refused: %s", i.GetBody())
					}
					return
				}
				if reply.GetDynamicMetadata() != nil {
					if got := destination(t, reply); got != tc.want {
						t.Errorf("chose %q, want %q", got, tc.want)
					}
					return
				}
			}
			t.Error("no decision")
		})
	}
}

// TestSubsetOfPair: both halves of a pair must be in the subset.
func TestSubsetOfPair(t *testing.T) {
	for range 20 {
		r := newRig(t, splitPool())
		hint := listHint("10.0.1.2:8000", "10.0.2.1:8000")
		m := newMemory(t.Context(), duplexModes.first(withSubset(headersMsg("POST", completions, false), hint)), bodyMsg(prompt16, true))
		if err := r.server.Process(m); err != nil {
			t.Fatal(err)
		}
		set := setHeaders(t, m.out[2][0])
		if set["x-prefiller-host-port"] != "10.0.1.2:8000" || set["x-gateway-destination-endpoint"] != "10.0.2.1:8000" {
			t.Fatalf("chose %v", set)
		}
	}
}

// TestOtherMetadata is no subset hint.
func TestOtherMetadata(t *testing.T) {
	head := withSubset(headersMsg("GET", otherPath, true), structpb.NewStringValue(podB))
	spaces := head.GetMetadataContext().GetFilterMetadata()
	spaces["envoy.lb"] = spaces["envoy.lb.subset_hint"]
	spaces["envoy.lb.subset_hint"] = &structpb.Struct{Fields: map[string]*structpb.Value{"something-else": structpb.NewStringValue(podB)}}
	r := newRig(t, []fleet.Worker{worker(1, fleet.Aggregated, podA0)})
	m := newMemory(t.Context(), duplexModes.first(head))
	if err := r.server.Process(m); err != nil {
		t.Fatal(err)
	}
	if got := destination(t, m.out[1][0]); got != netip.MustParseAddrPort(podA0).String() {
		t.Errorf("chose %q", got)
	}
}
