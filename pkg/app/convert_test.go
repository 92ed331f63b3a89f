package app

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
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

func TestGuessTTL(t *testing.T) {
	nats, none := v1alpha1.NATSSpec{URL: "nats://nats:4222"}, v1alpha1.CostSpec{}
	for name, tc := range map[string]struct {
		plane v1alpha1.EventPlaneSpec
		cost  v1alpha1.CostSpec
		ttl   time.Duration
		alone bool
	}{
		"beside events":        {v1alpha1.EventPlaneSpec{NATS: nats, SpeculationTTL: &v1alpha1.Duration{Duration: 7}}, none, 7, false},
		"the default":          {v1alpha1.EventPlaneSpec{NATS: nats}, none, 5 * time.Second, false},
		"turned off":           {v1alpha1.EventPlaneSpec{NATS: nats, SpeculationTTL: &v1alpha1.Duration{}}, none, 0, false},
		"no event plane":       {v1alpha1.EventPlaneSpec{NATS: nats, Disabled: true}, none, 2 * time.Minute, true},
		"no server is named":   {v1alpha1.EventPlaneSpec{}, none, 2 * time.Minute, true},
		"load only":            {v1alpha1.EventPlaneSpec{NATS: nats}, loadOnly(), 0, true},
		"load only, no events": {v1alpha1.EventPlaneSpec{Disabled: true}, loadOnly(), 0, true},
		"events not wanted":    {v1alpha1.EventPlaneSpec{NATS: nats}, v1alpha1.CostSpec{UseKVEvents: new(false)}, 2 * time.Minute, true},
		"a TTL of its own":     {v1alpha1.EventPlaneSpec{NATS: nats}, v1alpha1.CostSpec{UseKVEvents: new(false), RouterTTL: &v1alpha1.Duration{Duration: 9}}, 9, true},
		"events are wanted":    {v1alpha1.EventPlaneSpec{NATS: nats}, v1alpha1.CostSpec{UseKVEvents: new(true)}, 5 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := v1alpha1.EndpointPickerConfig{Spec: v1alpha1.RoutingPolicySpec{EventPlane: tc.plane}}
			c.Spec.Cost = tc.cost
			c.Default()
			if ttl, alone := guessTTL(&c.Spec); ttl != tc.ttl || alone != tc.alone {
				t.Errorf("decisions are remembered for %v, alone: %v; want %v, %v", ttl, alone, tc.ttl, tc.alone)
			}
		})
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
