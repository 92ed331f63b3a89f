package v1alpha1

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// everything is an environment that sets all that one can.
func everything() *RoutingPolicySpec {
	e := &RoutingPolicySpec{Cost: CostSpec{
		OverlapScoreCredit: new(0.1), OverlapScoreCreditDecay: new(0.2), HostCacheHitWeight: new(0.3), DiskCacheHitWeight: new(0.4),
		SharedCacheType: SharedCacheExternal, SharedCacheMultiplier: new(0.5), PrefillLoadScale: new(0.6), DecodeActiveRequestWeight: new(0.7),
		Temperature: new(0.8), AssumeKVReuse: new(false), TrackPrefillTokens: new(false), TrackActiveBlocks: new(false), TrackOutputBlocks: new(true),
		UseKVEvents: new(false), RouterTTL: &Duration{9 * time.Second},
	}}
	e.EventPlane.SpeculationTTL, e.EventPlane.ReplicaSync = &Duration{10 * time.Second}, new(true)
	e.Disaggregation = DisaggregationSpec{
		Mode: DisaggregationRequired, Condition: ConditionShortPrompt, EffISLThreshold: new(int64(11)), EffISLRatioThreshold: new(0.12),
		PrefillBusyThresholdFraction: new(0.125),
	}
	e.Admission = AdmissionSpec{
		ActivePrefillTokensThreshold: new(int64(13)), ActivePrefillTokensThresholdFraction: new(0.14),
		ActiveDecodeBlocksThreshold: new(int64(15)), ActiveDecodeBlocksThresholdFraction: new(0.16),
		Queue: QueueSpec{Policy: QueueWSPT},
	}
	return e
}

// What a file leaves out is what the environment says, and it selects the model.
func TestEnvironmentFills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(minimal), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LoadWith(path, everything())
	if err != nil {
		t.Fatal(err)
	}
	want, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if want.Spec.Cost.Model != ModelCongestion {
		t.Errorf("without an environment the model is %q", want.Spec.Cost.Model)
	}
	e := everything()
	e.Cost.Model, e.Cost.ClassHeader = ModelDynamo, want.Spec.Cost.ClassHeader
	e.Admission.Queue.MaxWait, e.Admission.Queue.MaxRequests = want.Spec.Admission.Queue.MaxWait, want.Spec.Admission.Queue.MaxRequests
	e.Disaggregation.Order, e.Disaggregation.NeedsPair = OrderJoint, PairAuto
	want.Spec.Cost, want.Spec.Disaggregation, want.Spec.Admission = e.Cost, e.Disaggregation, e.Admission
	want.Spec.EventPlane.SpeculationTTL, want.Spec.EventPlane.ReplicaSync = e.EventPlane.SpeculationTTL, e.EventPlane.ReplicaSync
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a file says counts, also where it is the default, or zero.
func TestFileCountsBeforeEnvironment(t *testing.T) {
	file := strings.TrimSuffix(minimal, "}}\n") + `, speculationTTL: 5s, replicaSync: false},
  cost: {overlapScoreCredit: 1, overlapScoreCreditDecay: 0, hostCacheHitWeight: 0.75, diskCacheHitWeight: 0.25, sharedCacheType: None,
    sharedCacheMultiplier: 0, prefillLoadScale: 1, decodeActiveRequestWeight: 0, temperature: 0, assumeKVReuse: true, trackPrefillTokens: true,
    trackActiveBlocks: true, trackOutputBlocks: false, useKVEvents: true, routerTTL: 0s},
  disaggregation: {mode: WhenReady, condition: Never, effISLThreshold: 0, effISLRatioThreshold: 0, prefillBusyThresholdFraction: 0},
  admission: {activePrefillTokensThreshold: 0, activePrefillTokensThresholdFraction: 0, activeDecodeBlocksThreshold: 0, activeDecodeBlocksThresholdFraction: 0, queue: {policy: FCFS}}}
`
	want, err := Decode([]byte(file), "f")
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeConfig([]byte(file), "f", everything())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The same the other way round: what a file turns on, the environment does not turn off.
func TestFileTurnsOn(t *testing.T) {
	file := strings.TrimSuffix(minimal, "}}\n") + `, replicaSync: true},
  cost: {assumeKVReuse: true, trackPrefillTokens: true, trackActiveBlocks: true, trackOutputBlocks: true, useKVEvents: true}}
`
	off := &RoutingPolicySpec{EventPlane: EventPlaneSpec{ReplicaSync: new(false)}, Cost: CostSpec{
		AssumeKVReuse: new(false), TrackPrefillTokens: new(false), TrackActiveBlocks: new(false), TrackOutputBlocks: new(false), UseKVEvents: new(false),
	}}
	got, _, err := decodeConfig([]byte(file), "f", off)
	if err != nil {
		t.Fatal(err)
	}
	c := &got.Spec.Cost
	for field, on := range map[string]*bool{
		"replicaSync": got.Spec.EventPlane.ReplicaSync, "assumeKVReuse": c.AssumeKVReuse, "trackPrefillTokens": c.TrackPrefillTokens,
		"trackActiveBlocks": c.TrackActiveBlocks, "trackOutputBlocks": c.TrackOutputBlocks, "useKVEvents": c.UseKVEvents,
	} {
		if !*on {
			t.Errorf("%s: the environment turned it off", field)
		}
	}
}

// What a variable may set can be left out: nothing in Go and no default of the CRD
// makes a field that nobody wrote look like one that somebody did.
func TestEnvironmentFieldsCanBeLeftOut(t *testing.T) {
	data, err := os.ReadFile("../../config/crd/routing.warmpath.dev_routingpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schemaNode `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	fields := 0
	eachSet(reflect.ValueOf(*everything()), "spec", func(path string, v reflect.Value) {
		fields++
		if v.Kind() != reflect.Pointer && v.Kind() != reflect.String {
			t.Errorf("%s is a %s: false and 0 cannot be told from nothing", path, v.Kind())
		}
		node := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for name := range strings.SplitSeq(path, ".") {
			next, ok := node.Properties[name]
			if !ok {
				t.Fatalf("the CRD has no %s", path)
			}
			node = next
		}
		if node.Default != nil {
			t.Errorf("the CRD has the default %v for %s: a policy that leaves it out looks as if it did not", node.Default, path)
		}
	})
	if fields < 20 {
		t.Errorf("only %d fields were looked at", fields)
	}
}

type schemaNode struct {
	Properties map[string]schemaNode `json:"properties"`
	Default    any                   `json:"default"`
}

// eachSet calls do for every field below v that is set, by its path.
func eachSet(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	for field, value := range v.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case value.IsZero():
		case value.Kind() == reflect.Struct:
			eachSet(value, path+"."+name, do)
		default:
			do(path+"."+name, value)
		}
	}
}

// A bound of prefill workers in tokens is a bound: the environment adds none.
func TestBusyTokensCountBeforeEnvironment(t *testing.T) {
	file := strings.TrimSuffix(minimal, "}\n") + ", disaggregation: {condition: PrefillBusy, prefillBusyThreshold: 4096}}\n"
	got, _, err := decodeConfig([]byte(file), "f", everything())
	if err != nil {
		t.Fatal(err)
	}
	if d := &got.Spec.Disaggregation; *d.PrefillBusyThreshold != 4096 || d.PrefillBusyThresholdFraction != nil {
		t.Errorf("%+v", d)
	}
}

// A condition of the environment needs a bound of it, and the error names that.
func TestConditionOfEnvironmentNeedsBound(t *testing.T) {
	e := &RoutingPolicySpec{Disaggregation: DisaggregationSpec{Condition: ConditionEither}}
	_, _, err := decodeConfig([]byte(minimal), "f", e)
	if err == nil || !strings.Contains(err.Error(), "DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD") {
		t.Errorf("got %v", err)
	}
	e.Disaggregation.PrefillBusyThresholdFraction = new(0.5)
	if _, _, err = decodeConfig([]byte(minimal), "f", e); err != nil {
		t.Errorf("with a bound: %v", err)
	}
}

// A file that asks for the model without knobs gets none from the environment.
func TestCongestionIsAskedFor(t *testing.T) {
	file := strings.TrimSuffix(minimal, "}\n") + ", cost: {model: Congestion}}\n"
	got, _, err := decodeConfig([]byte(file), "f", everything())
	if err != nil {
		t.Fatal(err)
	}
	want := CostSpec{Model: ModelCongestion, ClassHeader: got.Spec.Cost.ClassHeader, UseKVEvents: new(false), RouterTTL: &Duration{9 * time.Second}}
	if diff := cmp.Diff(want, got.Spec.Cost); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each knob alone selects Dynamo's model, and none is filled in.
func TestKnobsSelectTheModel(t *testing.T) {
	for _, knob := range []string{
		"overlapScoreCredit: 1", "overlapScoreCreditDecay: 0", "hostCacheHitWeight: 0.75", "diskCacheHitWeight: 0.25", "sharedCacheType: None",
		"sharedCacheMultiplier: 0.5", "prefillLoadScale: 1", "decodeActiveRequestWeight: 0", "temperature: 0", "assumeKVReuse: true",
		"trackPrefillTokens: true", "trackActiveBlocks: true", "trackOutputBlocks: false", "classes: [{name: a, temperature: 0}]",
	} {
		file := strings.TrimSuffix(minimal, "}\n") + ", cost: {" + knob + "}}\n"
		got, err := Decode([]byte(file), "f")
		if err != nil {
			t.Errorf("%s: %v", knob, err)
			continue
		}
		if c := &got.Spec.Cost; c.Model != ModelDynamo || len(c.knobs()) != 1 {
			t.Errorf("%s: model %s, knobs %v", knob, c.Model, c.knobs())
		}
		got.Default()
		if c := &got.Spec.Cost; c.Model != ModelDynamo || len(c.knobs()) != 1 {
			t.Errorf("%s: defaulted twice: model %s, knobs %v", knob, c.Model, c.knobs())
		}
		name, _, _ := strings.Cut(knob, ":")
		_, err = Decode([]byte(strings.Replace(file, "cost: {", "cost: {model: Congestion, ", 1)), "f")
		if err == nil || !strings.Contains(err.Error(), "spec.cost.model: Congestion has no knobs; remove "+name+", or") {
			t.Errorf("%s with model Congestion: %v", knob, err)
		}
	}
	for _, other := range []string{"useKVEvents: false", "routerTTL: 1m", "classHeader: x-class", "classes: []", "temperature: null"} {
		file := strings.TrimSuffix(minimal, "}\n") + ", cost: {" + other + "}}\n"
		if got, err := Decode([]byte(file), "f"); err != nil || got.Spec.Cost.Model != ModelCongestion {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func TestByteRate(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "1": 1, "1.5k": 1500, "50G": 50e9, "1Gi": 1 << 30, "0.5Ti": 1 << 39, "200M": 2e8, "3T": 3e12, "7Ki": 7168, "2Mi": 2 << 20} {
		var r ByteRate
		if err := r.UnmarshalText([]byte(text)); err != nil || r.BytesPerSecond != want {
			t.Errorf("%s = %v, %v, want %v", text, r.BytesPerSecond, err, want)
		}
		out, err := r.MarshalText()
		var again ByteRate
		if err != nil || again.UnmarshalText(out) != nil || again != r {
			t.Errorf("%s is written as %s", text, out)
		}
	}
	for _, text := range []string{"", "G", "-1", "1g", "1e9", "1 G", "1.", ".5", "Inf", "NaN", "0x10", "1_0", "50GB"} {
		var r ByteRate
		if err := r.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q = %v", text, r.BytesPerSecond)
		}
	}
}

func TestLoadOnly(t *testing.T) {
	zero, half := new(0.0), new(0.5)
	for _, tc := range []struct {
		cost CostSpec
		want bool
	}{
		{CostSpec{}, false},
		{CostSpec{Model: ModelDynamo}, false},
		{CostSpec{Model: ModelDynamo, OverlapScoreCredit: half}, false},
		{CostSpec{Model: ModelDynamo, OverlapScoreCredit: zero}, true},
		{CostSpec{Model: ModelCongestion, OverlapScoreCredit: zero}, false},
		{CostSpec{Model: ModelDynamo, OverlapScoreCredit: zero, Classes: []CostClass{{OverlapScoreCredit: zero}, {Temperature: half}}}, true},
		{CostSpec{Model: ModelDynamo, OverlapScoreCredit: zero, Classes: []CostClass{{OverlapScoreCredit: half}}}, false},
	} {
		if got := tc.cost.LoadOnly(); got != tc.want {
			t.Errorf("%+v: %v", tc.cost, got)
		}
	}
}
