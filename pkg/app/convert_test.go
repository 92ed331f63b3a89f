package app

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

func TestHandoffConversion(t *testing.T) {
	all := []v1alpha1.HandoffValue{
		v1alpha1.PrefillEndpoint, v1alpha1.PrefillInstanceID, v1alpha1.PrefillRank,
		v1alpha1.DecodeEndpoint, v1alpha1.DecodeInstanceID, v1alpha1.DecodeRank, v1alpha1.RoutingMode, v1alpha1.RequestID,
	}
	var headers []v1alpha1.HandoffHeader
	var want extproc.Handoff
	for i, v := range all {
		name := "x-" + string(rune('a'+i))
		headers = append(headers, v1alpha1.HandoffHeader{Name: name, Value: v})
		want = append(want, extproc.HandoffHeader{Name: name, Value: extproc.PrefillEndpoint + extproc.HandoffValue(i)})
	}
	for _, tc := range []struct {
		spec v1alpha1.HandoffSpec
		want extproc.Handoff
	}{
		{v1alpha1.HandoffSpec{}, extproc.DefaultHandoff()},
		{v1alpha1.HandoffSpec{Preset: v1alpha1.HandoffDefault}, extproc.DefaultHandoff()},
		{v1alpha1.HandoffSpec{Preset: v1alpha1.HandoffDynamo}, extproc.DynamoHandoff()},
		{v1alpha1.HandoffSpec{Preset: v1alpha1.HandoffNone}, nil},
		{v1alpha1.HandoffSpec{Headers: headers}, want},
	} {
		got := handoff(&tc.spec)
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%+v becomes %v, want %v", tc.spec, got, tc.want)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%+v: %v", tc.spec, err)
		}
	}
}

func TestEnginesOfAPool(t *testing.T) {
	at := netip.MustParseAddrPort
	pool, err := fleet.NewSnapshot([]fleet.Worker{
		{Key: fleet.Key{ID: 1}, Endpoint: at("10.0.0.1:8000"), Role: fleet.Prefill},
		{Key: fleet.Key{ID: 2}, Endpoint: at("10.0.0.2:8000"), Role: fleet.Decode},
		{Key: fleet.Key{ID: 2, Rank: 1}, Endpoint: at("10.0.0.2:8000"), Role: fleet.Decode},
		{Key: fleet.Key{ID: 3}, Endpoint: at("[2001:db8::1]:8000"), Role: fleet.Aggregated},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := engines(pool), []string{"http://10.0.0.2:8000", "http://[2001:db8::1]:8000"}; !slices.Equal(got, want) {
		t.Errorf("engines %v, want %v", got, want)
	}
}

func TestGuessesNeedEvents(t *testing.T) {
	ttl, nats := &v1alpha1.Duration{Duration: 7}, v1alpha1.NATSSpec{URL: "nats://nats:4222"}
	for _, tc := range []struct {
		plane v1alpha1.EventPlaneSpec
		want  int64
	}{
		{v1alpha1.EventPlaneSpec{NATS: nats, SpeculationTTL: ttl}, 7},
		{v1alpha1.EventPlaneSpec{NATS: nats}, 0},
		{v1alpha1.EventPlaneSpec{SpeculationTTL: ttl}, 0}, // waits for a policy that names a server
		{v1alpha1.EventPlaneSpec{NATS: nats, Disabled: true, SpeculationTTL: ttl}, 0},
	} {
		if got := guessTTL(&v1alpha1.RoutingPolicySpec{EventPlane: tc.plane}); int64(got) != tc.want {
			t.Errorf("%+v: guesses live %v", tc.plane, got)
		}
	}
}

func TestAdaptersConversion(t *testing.T) {
	got := adapters(&v1alpha1.RoutingPolicySpec{Adapters: []string{"a", "b"}})
	if want := map[string]bool{"a": true, "b": true}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSecurityConversion(t *testing.T) {
	for _, tc := range []struct {
		spec v1alpha1.NATSSpec
		want eventplane.Security
	}{
		{v1alpha1.NATSSpec{URL: "nats://a:4222"}, eventplane.Security{}},
		{v1alpha1.NATSSpec{TLS: &v1alpha1.NATSTLSSpec{}}, eventplane.Security{TLS: &eventplane.TLS{}}},
		{
			v1alpha1.NATSSpec{TLS: &v1alpha1.NATSTLSSpec{CAFile: "a", CertFile: "b", KeyFile: "c", ServerName: "d", InsecureSkipVerify: true}},
			eventplane.Security{TLS: &eventplane.TLS{CAFile: "a", CertFile: "b", KeyFile: "c", ServerName: "d", InsecureSkipVerify: true}},
		},
		{
			v1alpha1.NATSSpec{CredentialsFile: "a", NKeyFile: "b", UserFile: "c", PasswordFile: "d", TokenFile: "e"},
			eventplane.Security{CredentialsFile: "a", NKeyFile: "b", UserFile: "c", PasswordFile: "d", TokenFile: "e"},
		},
	} {
		if got := security(&tc.spec); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%+v becomes %+v, want %+v", tc.spec, got, tc.want)
		}
	}
}

// Defaults of the API are the defaults of decisions, and every field arrives.
func TestPickOptions(t *testing.T) {
	var spec v1alpha1.RoutingPolicySpec
	spec.Default()
	want := pick.DefaultOptions()
	want.Model = pick.Dynamo
	if got := pickOptions(&spec); !reflect.DeepEqual(got, want) {
		t.Errorf("defaults: %+v, want %+v", got, want)
	}
	spec.Cost = v1alpha1.CostSpec{
		OverlapScoreCredit: new(0.1), HostCacheHitWeight: new(0.2), DiskCacheHitWeight: new(0.3), PrefillLoadScale: new(0.4), Temperature: new(0.5),
	}
	spec.Admission = v1alpha1.AdmissionSpec{ActivePrefillTokensThreshold: 6, ActiveDecodeBlocksThreshold: 7}
	for mode, split := range map[v1alpha1.DisaggregationMode]pick.Split{
		v1alpha1.DisaggregationWhenReady: pick.SplitWhenReady,
		v1alpha1.DisaggregationRequired:  pick.SplitRequired,
		v1alpha1.DisaggregationNever:     pick.SplitNever,
	} {
		spec.Disaggregation.Mode = mode
		k := &want.Dynamo
		k.OverlapScoreCredit, k.HostCacheHitWeight, k.DiskCacheHitWeight, k.PrefillLoadScale, k.Temperature = 0.1, 0.2, 0.3, 0.4, 0.5
		want.Split.Mode, want.MaxPrefillTokens, want.MaxDecodeBlocks = split, 6, 7
		if got := pickOptions(&spec); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", mode, got, want)
		}
	}
}

func TestRewriteConversion(t *testing.T) {
	got := rewriteRules(&v1alpha1.RoutingPolicySpec{ModelRewrites: []v1alpha1.ModelRewriteRule{
		{Matches: []string{"a", "b"}, Targets: []v1alpha1.ModelRewriteTarget{{ModelRewrite: "x"}, {ModelRewrite: "y", Weight: new(int64(3))}}},
		{Targets: []v1alpha1.ModelRewriteTarget{{ModelRewrite: "z"}}},
	}})
	want := []rewrite.Rule{
		{Matches: []string{"a", "b"}, Targets: []rewrite.Target{{Model: "x"}, {Model: "y", Weight: 3}}},
		{Targets: []rewrite.Target{{Model: "z"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
