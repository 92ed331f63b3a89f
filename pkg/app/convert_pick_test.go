package app

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/pick"
)

// Defaults of the API are the defaults of decisions.
func TestPickDefaults(t *testing.T) {
	var spec v1alpha1.RoutingPolicySpec
	spec.Default()
	if diff := cmp.Diff(pick.DefaultOptions(), pickOptions(&spec)); diff != "" {
		t.Error(diff)
	}
	spec = v1alpha1.RoutingPolicySpec{Cost: v1alpha1.CostSpec{Temperature: new(0.0)}}
	spec.Default()
	want := pick.DefaultOptions()
	want.Model = pick.Dynamo // any knob asks for it, also at its default
	if diff := cmp.Diff(want, pickOptions(&spec)); diff != "" {
		t.Error(diff)
	}
}

// everyOption is a spec with another value in every field that decisions know.
func everyOption() (spec v1alpha1.RoutingPolicySpec) {
	rate := func(n float64) *v1alpha1.ByteRate { return &v1alpha1.ByteRate{BytesPerSecond: n} }
	spec.Cost = v1alpha1.CostSpec{
		OverlapScoreCredit: new(0.1), HostCacheHitWeight: new(0.2), DiskCacheHitWeight: new(0.3), PrefillLoadScale: new(0.4), Temperature: new(0.6),
		SharedCacheType: v1alpha1.SharedCacheExternal, SharedCacheMultiplier: new(0.7), OverlapScoreCreditDecay: new(0.8), DecodeActiveRequestWeight: new(0.9),
		AssumeKVReuse: new(false), TrackPrefillTokens: new(false), TrackActiveBlocks: new(false), TrackOutputBlocks: new(true),
		Classes: []v1alpha1.CostClass{{Name: "a", OverlapScoreCredit: new(0.11)}, {Name: "b", PrefillLoadScale: new(0.12), Temperature: new(0.13)}},
	}
	spec.Disaggregation = v1alpha1.DisaggregationSpec{
		Order: v1alpha1.OrderDecodeFirst, Condition: v1alpha1.ConditionEither, EffISLThreshold: new(int64(14)), EffISLRatioThreshold: new(0.15),
		PrefillBusyThreshold: new(int64(16)), PrefillBusyThresholdFraction: new(0.16), NeedsPair: v1alpha1.PairAlways,
		Transfer: v1alpha1.TransferSpec{
			BytesPerToken: 17, BytesPerRequest: 18, SerialLatency: v1alpha1.Duration{Duration: 1500 * time.Millisecond},
			Bandwidth: v1alpha1.BandwidthSpec{Host: rate(1), Fabric: rate(2), Rack: rate(3), Zone: rate(4), Elsewhere: rate(5)},
		},
	}
	spec.Admission = v1alpha1.AdmissionSpec{
		ActivePrefillTokensThreshold: new(int64(19)), ActiveDecodeBlocksThreshold: new(int64(20)),
		ActivePrefillTokensThresholdFraction: new(0.21), ActiveDecodeBlocksThresholdFraction: new(0.22),
	}
	spec.Default()
	return spec
}

func TestPickOptions(t *testing.T) {
	spec := everyOption()
	got := pickOptions(&spec)
	want := pick.Options{
		Model: pick.Dynamo,
		Dynamo: pick.DynamoKnobs{
			OverlapScoreCredit: 0.1, HostCacheHitWeight: 0.2, DiskCacheHitWeight: 0.3, PrefillLoadScale: 0.4, Temperature: 0.6,
			SharedCache: true, SharedCacheMultiplier: 0.7, OverlapScoreCreditDecay: 0.8, DecodeActiveRequestWeight: 0.9,
			IgnoreKVReuse: true, IgnorePrefill: true, IgnoreActiveBlocks: true, TrackOutputBlocks: true,
		},
		Classes: map[string]pick.ClassKnobs{"a": {OverlapScoreCredit: new(0.11)}, "b": {PrefillLoadScale: new(0.12), Temperature: new(0.13)}},
		Split: pick.SplitOptions{
			Order: pick.DecodeFirst, Condition: pick.IfEither, ShortTokens: 14, ShortRatio: 0.15, BusyPrefillTokens: 16, BusyPrefillShare: 0.16, NeedsPair: true,
		},
		Transfer:         pick.TransferOptions{BytesPerToken: 17, BytesPerPrompt: 18, SerialSeconds: 1.5},
		MaxPrefillTokens: 19, MaxDecodeBlocks: 20, MaxPrefillShare: 0.21, MaxBlocksShare: 0.22,
	}
	copy(want.Transfer.BytesPerSecond[:], []float64{1, 2, 3, 4, 5})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Every option of decisions can be reached from a policy: an option that is added
// later and forgotten in the API stays zero here.
func TestEveryPickOptionIsReachable(t *testing.T) {
	spec := everyOption()
	checkSet(t, "Options", reflect.ValueOf(pickOptions(&spec)), map[string]bool{"Options.Split.Mode": true}) // see TestSplitModes
}

func checkSet(t *testing.T, path string, v reflect.Value, skip map[string]bool) {
	t.Helper()
	switch {
	case skip[path]:
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			checkSet(t, path+"."+v.Type().Field(i).Name, v.Field(i), skip)
		}
	case v.IsZero():
		t.Errorf("%s cannot be set by a policy", path)
	}
}

func TestSplitModes(t *testing.T) {
	for mode, want := range map[v1alpha1.DisaggregationMode]pick.Split{
		v1alpha1.DisaggregationWhenReady: pick.SplitWhenReady,
		v1alpha1.DisaggregationRequired:  pick.SplitRequired,
		v1alpha1.DisaggregationNever:     pick.SplitNever,
	} {
		spec := v1alpha1.RoutingPolicySpec{Disaggregation: v1alpha1.DisaggregationSpec{Mode: mode, Condition: v1alpha1.ConditionShortPrompt}}
		spec.Default()
		condition := pick.Never
		if mode == v1alpha1.DisaggregationWhenReady {
			condition = pick.IfShort
		}
		if got := pickOptions(&spec).Split; got.Mode != want || got.Condition != condition {
			t.Errorf("%s becomes %+v", mode, got)
		}
	}
	for given, want := range map[v1alpha1.SplitCondition]pick.Condition{
		v1alpha1.ConditionNever: pick.Never, v1alpha1.ConditionShortPrompt: pick.IfShort, v1alpha1.ConditionPrefillBusy: pick.IfPrefillBusy,
		v1alpha1.ConditionEither: pick.IfEither, v1alpha1.ConditionEstimatedTime: pick.IfFaster,
	} {
		spec := v1alpha1.RoutingPolicySpec{Disaggregation: v1alpha1.DisaggregationSpec{Condition: given}}
		spec.Default()
		if got := pickOptions(&spec).Split.Condition; got != want {
			t.Errorf("%s becomes %d, want %d", given, got, want)
		}
	}
}

// A bound of a prefill worker that is left out binds nothing, and one of 0 all.
func TestBusyPrefill(t *testing.T) {
	for _, tc := range []struct {
		tokens *int64
		share  *float64

		wantTokens int
		wantShare  float64
	}{
		{nil, nil, 0, 0}, // the condition is refused
		{new(int64(5)), nil, 5, 0},
		{new(int64(0)), nil, 1, 0},
		{nil, new(0.5), 0, 0.5},
		{nil, new(0.0), 0, anyTokens},
		{new(int64(5)), new(2.0), 5, 2},
	} {
		spec := v1alpha1.RoutingPolicySpec{Disaggregation: v1alpha1.DisaggregationSpec{PrefillBusyThreshold: tc.tokens, PrefillBusyThresholdFraction: tc.share}}
		spec.Default()
		if got := pickOptions(&spec).Split; got.BusyPrefillTokens != tc.wantTokens || got.BusyPrefillShare != tc.wantShare {
			t.Errorf("%v and %v become %d and %v", tc.tokens, tc.share, got.BusyPrefillTokens, got.BusyPrefillShare)
		}
	}
}

// Dynamo's frontends serve nothing on a decode worker alone.
func TestNeedsPair(t *testing.T) {
	for _, tc := range []struct {
		need   v1alpha1.PairNeed
		preset v1alpha1.HandoffPreset
		want   bool
	}{
		{"", "", false},
		{"", v1alpha1.HandoffDynamo, true},
		{v1alpha1.PairAuto, v1alpha1.HandoffNone, false},
		{v1alpha1.PairAlways, v1alpha1.HandoffDefault, true},
		{v1alpha1.PairNever, v1alpha1.HandoffDynamo, false},
	} {
		var spec v1alpha1.RoutingPolicySpec
		spec.Disaggregation.NeedsPair, spec.Handoff.Preset = tc.need, tc.preset
		spec.Default()
		if got := pickOptions(&spec).Split.NeedsPair; got != tc.want {
			t.Errorf("%q with preset %q: %v", tc.need, tc.preset, got)
		}
	}
}
