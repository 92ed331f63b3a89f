package app

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/pick"
)

type spec = v1alpha1.RoutingPolicySpec

// seconds is a duration in a spec.
func seconds(n float64) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: time.Duration(n * float64(time.Second))}
}

// TestEnvironment: every variable, what it sets, and what it does not take.
func TestEnvironment(t *testing.T) {
	flags := []string{"2", "maybe", "truee"}
	fraction := []string{"-0.1", "1.1", "NaN", "inf", "half", "0,5"}
	covered := map[string]bool{}
	for name, tc := range map[string]struct {
		value string
		want  func(*spec) // with the variable alone
		bad   []string
	}{
		"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT":       {"0.5", func(s *spec) { s.Cost.OverlapScoreCredit = new(0.5) }, fraction},
		"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY": {"0.5", func(s *spec) { s.Cost.OverlapScoreCreditDecay = new(0.5) }, []string{"-1", "1001", "x"}},
		"DYN_ROUTER_HOST_CACHE_HIT_WEIGHT":         {"0.5", func(s *spec) { s.Cost.HostCacheHitWeight = new(0.5) }, fraction},
		"DYN_ROUTER_DISK_CACHE_HIT_WEIGHT":         {"0.5", func(s *spec) { s.Cost.DiskCacheHitWeight = new(0.5) }, fraction},
		"DYN_SHARED_CACHE_TYPE":                    {"hicache", func(s *spec) { s.Cost.SharedCacheType = v1alpha1.SharedCacheExternal }, []string{"External", "HICACHE", "x"}},
		"DYN_SHARED_CACHE_MULTIPLIER":              {"0.25", func(s *spec) { s.Cost.SharedCacheMultiplier = new(0.25) }, fraction},
		"DYN_ROUTER_PREFILL_LOAD_SCALE":            {"2", func(s *spec) { s.Cost.PrefillLoadScale = new(2.0) }, []string{"-1", "1001", "x"}},
		"DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT":       {"2", func(s *spec) { s.Cost.PrefillLoadScale = new(2.0) }, []string{"-1", "1001", "x"}},
		"DYN_OVERLAP_SCORE_WEIGHT":                 {"0", func(s *spec) { s.Cost.PrefillLoadScale, s.Cost.OverlapScoreCredit = new(0.0), new(0.0) }, []string{"x"}},
		"DYN_KV_OVERLAP_SCORE_WEIGHT":              {"1", func(s *spec) { s.Cost.PrefillLoadScale = new(1.0) }, []string{"x"}},
		"DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT":  {"8", func(s *spec) { s.Cost.DecodeActiveRequestWeight = new(8.0) }, []string{"-1", "1000001", "x"}},
		"DYN_ROUTER_TEMPERATURE":                   {" 0.5 ", func(s *spec) { s.Cost.Temperature = new(0.5) }, []string{"-1", "101", "warm"}},
		"DYN_ROUTER_ASSUME_KV_REUSE":               {"FALSE", func(s *spec) { s.Cost.AssumeKVReuse = new(false) }, flags},
		"DYN_ROUTER_TRACK_PREFILL_TOKENS":          {"off", func(s *spec) { s.Cost.TrackPrefillTokens = new(false) }, flags},
		"DYN_ROUTER_TRACK_ACTIVE_BLOCKS":           {"no", func(s *spec) { s.Cost.TrackActiveBlocks = new(false) }, flags},
		"DYN_ROUTER_TRACK_OUTPUT_BLOCKS":           {"1", func(s *spec) { s.Cost.TrackOutputBlocks = new(true) }, flags},
		"DYN_ROUTER_USE_KV_EVENTS":                 {"0", func(s *spec) { s.Cost.UseKVEvents = new(false) }, flags},
		"DYN_USE_KV_EVENTS":                        {"true", func(s *spec) { s.Cost.UseKVEvents = new(true) }, flags},
		"DYN_ROUTER_TTL_SECS":                      {"90.5", func(s *spec) { s.Cost.RouterTTL = seconds(90.5) }, []string{"-1", "86401", "90s"}},
		"DYN_ROUTER_PREDICTED_TTL_SECS":            {"3", func(s *spec) { s.EventPlane.SpeculationTTL = seconds(3) }, []string{"-1", "3601", "3s"}},
		"DYN_ROUTER_REPLICA_SYNC":                  {"yes", func(s *spec) { s.EventPlane.ReplicaSync = new(true) }, flags},
		"DYN_ENFORCE_DISAGG":                       {"true", func(s *spec) { s.Disaggregation.Mode = v1alpha1.DisaggregationRequired }, flags},
		"DYN_ROUTER_CONDITIONAL_DISAGG":            {"on", func(s *spec) { s.Disaggregation.Condition = v1alpha1.ConditionShortPrompt }, flags},
		"DYN_ROUTER_CONDITIONAL_DISAGG_POLICY":     {"isl_or_load", func(*spec) {}, []string{"Either", "isl"}},
		"DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_THRESHOLD": {
			"512", func(s *spec) { s.Disaggregation.EffISLThreshold = new(int64(512)) }, []string{"-1", "1.5", "1000000001", "x"},
		},
		"DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_RATIO_THRESHOLD": {
			"1.5", func(s *spec) { s.Disaggregation.EffISLRatioThreshold = new(1.5) }, []string{"-0.1", "2.1", "NaN", "half"},
		},
		"DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD": {
			"0.5", func(s *spec) { s.Disaggregation.PrefillBusyThresholdFraction = new(0.5) }, []string{"-1", "1000001", "NaN", "inf", "x"},
		},
		"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD": {
			"4096", func(s *spec) { s.Admission.ActivePrefillTokensThreshold = new(int64(4096)) }, []string{"0", "-1", "1.5", "1000000001", "x"},
		},
		"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC": {"4", func(s *spec) { s.Admission.ActivePrefillTokensThresholdFraction = new(4.0) }, []string{"0", "-1", "1000001", "x"}},
		"DYN_ROUTER_QUEUE_THRESHOLD":               {"16.0", func(s *spec) { s.Admission.ActivePrefillTokensThresholdFraction = new(16.0) }, []string{"-1", "1000001", "x"}},
		"DYN_ROUTER_QUEUE_POLICY":                  {"wspt", func(s *spec) { s.Admission.Queue.Policy = v1alpha1.QueueWSPT }, []string{"WSPT", "lcfs", "x"}},
		"DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD":       {"0.9", func(s *spec) { s.Admission.ActiveDecodeBlocksThresholdFraction = new(0.9) }, []string{"0", "1.1", "x"}},
		"DYN_ROUTER_LOAD_AWARE": {"true", func(s *spec) {
			s.Cost = v1alpha1.CostSpec{
				OverlapScoreCredit: new(0.0), UseKVEvents: new(false), AssumeKVReuse: new(false), TrackActiveBlocks: new(true), TrackPrefillTokens: new(true),
				SharedCacheType: v1alpha1.SharedCacheNone,
			}
		}, flags},
	} {
		covered[name] = true
		env, err := ReadEnvironment([]string{"PATH=/bin", name + "=" + tc.value})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want spec
		tc.want(&want)
		if diff := cmp.Diff(want, env.Spec); diff != "" {
			t.Errorf("%s=%s (-want +got):\n%s", name, tc.value, diff)
		}
		if len(env.Set) != 1 || len(env.Ignored) != 0 || !strings.HasPrefix(env.Set[0].String(), name+"="+tc.value+" is the default of spec.") {
			t.Errorf("%s: %v, %v", name, env.Set, env.Ignored)
		}
		checkBadValues(t, name, tc.bad)
	}
	for _, v := range append(costVariables(), poolVariables()...) {
		for _, name := range v.names {
			if !covered[name] {
				t.Errorf("%s is not tested", name)
			}
		}
	}
}

func checkBadValues(t *testing.T, name string, values []string) {
	t.Helper()
	for _, value := range values {
		_, err := ReadEnvironment([]string{name + "=" + value})
		if err == nil || !strings.HasPrefix(err.Error(), name+"=\""+value+"\": must be ") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if len(values) == 0 {
		t.Errorf("%s: no bad value", name)
	}
}

// Variables that have no effect say why, and their values are checked as well.
func TestIdleVariables(t *testing.T) {
	for name, tc := range map[string]struct {
		good string
		bad  []string // nil: anything goes
	}{
		"DYN_ROUTER_MODE":                                     {"kv", []string{"KV", "x"}},
		"DYN_ROUTER_DURABLE_KV_EVENTS":                        {"true", []string{"x"}},
		"DYN_ROUTER_SNAPSHOT_THRESHOLD":                       {"1000000", []string{"0", "x"}},
		"DYN_ROUTER_RESET_STATES":                             {"false", []string{"x"}},
		"DYN_ROUTER_EVENT_THREADS":                            {"4", []string{"0", "x"}},
		"DYN_USE_REMOTE_INDEXER":                              {"false", []string{"x"}},
		"DYN_SERVE_INDEXER":                                   {"false", []string{"x"}},
		"DYN_ROUTER_MIN_INITIAL_WORKERS":                      {"0", []string{"-1", "x"}},
		"DYN_ROUTER_PREFILL_LOAD_MODEL":                       {"aic", []string{"x"}},
		"DYN_ROUTER_APPROXIMATE_CACHE_POLICY":                 {"lru", []string{"x"}},
		"DYN_ADMISSION_CONTROL":                               {"token-capacity", []string{"x"}},
		"DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS":               {"10", []string{"-1", "x"}},
		"DYN_ROUTER_CONDITIONAL_DISAGG_DECODE_BUSY_THRESHOLD": {"0.5", []string{"-1", "x"}},
		"DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG":                {"{}", nil},
		"DYN_ROUTER_POLICY_CONFIG":                            {"/p.yaml", nil},
		"DYN_ROUTER_PREFILL_POLICY":                           {"x", nil},
		"DYN_ROUTER_DECODE_POLICY":                            {"x", nil},
		"DYN_ROUTER_WORKER_SELECTION_POLICY":                  {"x", nil},
		"DYN_ROUTER_TRACKING_HASH":                            {"x", nil},
		"DYN_ROUTER_TRACKING_HASH_KEY_FILE":                   {"/k", nil},
		"DYN_ROUTER_TRACKING_KEY_FILE":                        {"/k", nil},
		"DYN_ROUTER_TRACKING_HASH_KEY_ID":                     {"x", nil},
		"DYN_ROUTER_TRACKING_KEY_ID":                          {"x", nil},
		"DYN_ROUTER_SESSION_AFFINITY_TTL_SECS":                {"60", []string{"-1", "x"}},
		"DYN_ROUTER_SESSION_AFFINITY_MODE":                    {"soft", []string{"x"}},
		"DYN_ROUTER_NAMESPACE":                                {"x", nil},
		"DYN_ROUTER_ENDPOINT":                                 {"a.b.c", nil},
		"DYN_ROUTER_BLOCK_SIZE":                               {"64", []string{"0", "x"}},
	} {
		env, err := ReadEnvironment([]string{name + "=" + tc.good})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(spec{}, env.Spec); diff != "" {
			t.Errorf("%s sets something: %s", name, diff)
		}
		if len(env.Set) != 0 || len(env.Ignored) != 1 || !strings.HasPrefix(env.Ignored[0].String(), name+"="+tc.good+" has no effect: ") {
			t.Errorf("%s: %v, %v", name, env.Set, env.Ignored)
		}
		if tc.bad != nil {
			checkBadValues(t, name, tc.bad)
		}
	}
}

// Several variables together.
func TestEnvironmentTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		environ []string
		want    func(*spec)
		err     string // a part of it; empty for none
	}{
		"none":                           {nil, func(*spec) {}, ""},
		"empty counts as not set":        {[]string{"DYN_ROUTER_TEMPERATURE="}, func(*spec) {}, ""},
		"others are not looked at":       {[]string{"DYN_LOG=debug", "DYN_COMPONENT=x", "NO_VALUE"}, func(*spec) {}, ""},
		"none is no bound":               {[]string{"DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD=None"}, func(*spec) {}, ""},
		"not enforced":                   {[]string{"DYN_ENFORCE_DISAGG=false"}, func(*spec) {}, ""},
		"not conditional":                {[]string{"DYN_ROUTER_CONDITIONAL_DISAGG=0", "DYN_ROUTER_CONDITIONAL_DISAGG_POLICY=isl_or_load"}, func(*spec) {}, ""},
		"variables of Services":          {[]string{"DYN_ROUTER_A_SERVICE_HOST=10.0.0.1", "DYN_ROUTER_A_PORT=tcp://10.0.0.1:80", "DYN_ROUTER_A_SERVICE_PORT_HTTP=80", "DYN_ROUTER_A_PORT_80_TCP_ADDR=10.0.0.1"}, func(*spec) {}, ""},
		"two names, one value":           {[]string{"DYN_USE_KV_EVENTS=false", "DYN_ROUTER_USE_KV_EVENTS=false"}, func(s *spec) { s.Cost.UseKVEvents = new(false) }, ""},
		"two names, two values":          {[]string{"DYN_USE_KV_EVENTS=true", "DYN_ROUTER_USE_KV_EVENTS=false"}, nil, `DYN_USE_KV_EVENTS="true" contradicts DYN_ROUTER_USE_KV_EVENTS="false"`},
		"an older name that agrees":      {[]string{"DYN_ROUTER_PREFILL_LOAD_SCALE=2", "DYN_OVERLAP_SCORE_WEIGHT=2"}, func(s *spec) { s.Cost.PrefillLoadScale = new(2.0) }, ""},
		"an older name that contradicts": {[]string{"DYN_ROUTER_PREFILL_LOAD_SCALE=2", "DYN_OVERLAP_SCORE_WEIGHT=1"}, nil, "contradicts DYN_ROUTER_PREFILL_LOAD_SCALE"},
		"no weight, but a credit":        {[]string{"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT=1", "DYN_OVERLAP_SCORE_WEIGHT=0"}, nil, "contradicts DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"},
		"a typing error":                 {[]string{"DYN_ROUTER_TEMPRATURE=1"}, nil, "DYN_ROUTER_TEMPRATURE is the name of no variable (did you mean DYN_ROUTER_TEMPERATURE?)"},
		"a typing error elsewhere":       {[]string{"DYN_ACTIVE_DECODE_BLOCK_THRESHOLD=1"}, nil, "did you mean DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD?"},
		"nothing like it":                {[]string{"DYN_ROUTER_X=1"}, nil, "known here: "},
		"all mistakes at once":           {[]string{"DYN_ROUTER_TEMPERATURE=warm", "DYN_ROUTER_TTL_SECS=2m", "DYN_ROUTER_Y=1"}, nil, "DYN_ROUTER_Y is the name of no variable"},
		"a preset takes the place of the rest": {
			[]string{"DYN_ROUTER_LOAD_AWARE=1", "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT=1", "DYN_ROUTER_TEMPERATURE=0.5"}, func(s *spec) {
				s.Cost = v1alpha1.CostSpec{
					OverlapScoreCredit: new(0.0), UseKVEvents: new(false), AssumeKVReuse: new(false), TrackActiveBlocks: new(true), TrackPrefillTokens: new(true),
					SharedCacheType: v1alpha1.SharedCacheNone, Temperature: new(0.5),
				}
			}, "",
		},
		"the lower of two bounds": {
			[]string{"DYN_ROUTER_QUEUE_THRESHOLD=4", "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC=10"},
			func(s *spec) { s.Admission.ActivePrefillTokensThresholdFraction = new(4.0) }, "",
		},
		"a queue threshold of 0: any token": {
			[]string{"DYN_ROUTER_QUEUE_THRESHOLD=0", "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC=10"},
			func(s *spec) { s.Admission.ActivePrefillTokensThresholdFraction = new(anyTokens) }, "",
		},
		"no bound of prefill workers": {[]string{"DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD=none"}, func(*spec) {}, ""},
		"the lower of two bounds, the other way": {
			[]string{"DYN_ROUTER_QUEUE_THRESHOLD=16", "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC=10"},
			func(s *spec) { s.Admission.ActivePrefillTokensThresholdFraction = new(10.0) }, "",
		},
		"a condition and its numbers": {
			[]string{"DYN_ROUTER_CONDITIONAL_DISAGG=1", "DYN_ROUTER_CONDITIONAL_DISAGG_POLICY=isl_or_load", "DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_THRESHOLD=256"},
			func(s *spec) {
				s.Disaggregation.Condition, s.Disaggregation.EffISLThreshold = v1alpha1.ConditionEither, new(int64(256))
			}, "",
		},
	} {
		env, err := ReadEnvironment(tc.environ)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", name, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want spec
		tc.want(&want)
		if diff := cmp.Diff(want, env.Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The log of a picker that starts says what of its environment counts.
func TestEnvironmentIsLogged(t *testing.T) {
	env, err := ReadEnvironment([]string{"DYN_ROUTER_TEMPERATURE=0.5", "DYN_ROUTER_EVENT_THREADS=4"})
	if err != nil {
		t.Fatal(err)
	}
	for model, warned := range map[v1alpha1.CostModel]bool{v1alpha1.ModelDynamo: false, v1alpha1.ModelCongestion: true} {
		var out strings.Builder
		env.Log(slog.New(slog.NewTextHandler(&out, nil)), &spec{Cost: v1alpha1.CostSpec{Model: model}})
		for _, part := range []string{"variable=DYN_ROUTER_TEMPERATURE", "field=spec.cost.temperature", "variable=DYN_ROUTER_EVENT_THREADS", "GOMAXPROCS"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: %q is missing in\n%s", model, part, out.String())
			}
		}
		if got := strings.Contains(out.String(), "asks for cost.model Congestion"); got != warned {
			t.Errorf("%s: warned %v\n%s", model, got, out.String())
		}
	}
}

var documentedVariable = regexp.MustCompile("`(DYN_[A-Z_]+[A-Z])(=[a-z]+)?`")

// Every variable is in docs/decisions.md, and none there is unknown.
func TestVariablesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range documentedVariable.FindAllSubmatch(page, -1) {
		documented[string(m[1])] = true
	}
	for _, v := range routerVariables {
		for _, name := range v.names {
			if !documented[name] {
				t.Errorf("%s is not in docs/decisions.md", name)
			}
			delete(documented, name)
		}
	}
	for name := range documented {
		t.Errorf("docs/decisions.md has %s, which no variable is called", name)
	}
}

// Every field that decides is in the table of docs/decisions.md.
func TestKnobsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	for prefix, part := range map[string]any{
		"cost.": v1alpha1.CostSpec{}, "disaggregation.": v1alpha1.DisaggregationSpec{}, "sessionAffinity.": v1alpha1.SessionAffinitySpec{},
		"admission.": v1alpha1.AdmissionSpec{}, "admission.queue.": v1alpha1.QueueSpec{},
	} {
		for field := range reflect.TypeOf(part).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "queue" && !strings.Contains(string(page), "\n| `"+prefix+name+"` | ") {
				t.Errorf("%s%s is not in docs/decisions.md", prefix, name)
			}
		}
	}
}

// The defaults in docs/decisions.md are those of decisions.
func TestDocumentedDefaults(t *testing.T) {
	page, err := os.ReadFile("../../docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	o := pick.DefaultOptions()
	k, split := &o.Dynamo, &o.Split
	for field, value := range map[string]any{
		"cost.overlapScoreCredit": k.OverlapScoreCredit, "cost.overlapScoreCreditDecay": k.OverlapScoreCreditDecay,
		"cost.hostCacheHitWeight": k.HostCacheHitWeight, "cost.diskCacheHitWeight": k.DiskCacheHitWeight,
		"cost.sharedCacheMultiplier": k.SharedCacheMultiplier, "cost.prefillLoadScale": k.PrefillLoadScale,
		"cost.decodeActiveRequestWeight": k.DecodeActiveRequestWeight, "cost.temperature": k.Temperature,
		"cost.assumeKVReuse": !k.IgnoreKVReuse, "cost.trackPrefillTokens": !k.IgnorePrefill,
		"cost.trackActiveBlocks": !k.IgnoreActiveBlocks, "cost.trackOutputBlocks": k.TrackOutputBlocks,
		"disaggregation.effISLThreshold": split.ShortTokens, "disaggregation.effISLRatioThreshold": split.ShortRatio,
	} {
		if row := fmt.Sprintf("\n| `%s` | %v | ", field, value); !strings.Contains(string(page), row) {
			t.Errorf("docs/decisions.md has no row that begins %q", row)
		}
	}
}
