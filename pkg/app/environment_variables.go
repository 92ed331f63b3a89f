package app

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// draft is what variables say together.
type draft struct {
	v1alpha1.RoutingPolicySpec

	loadAware, conditional bool
	condition              v1alpha1.SplitCondition
}

// variable is one of the environment.
type variable struct {
	names []string                           // today's, then older ones
	field string                             // of the spec, that it sets
	why   string                             // it has no effect
	set   func(d *draft, value string) error // the error says what is allowed
}

// names of one variable.
func named(names ...string) []string { return names }

// routerVariables are those of Dynamo's router (dynamo.md 4.2 and 4.4).
var routerVariables = append(append(costVariables(), poolVariables()...), idleVariables()...)

// costVariables set fields of spec.cost.
func costVariables() []variable {
	const cost = "spec.cost."
	return []variable{
		{
			names: named("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"), field: cost + "overlapScoreCredit",
			set: asNumber(1, func(d *draft, v float64) { d.Cost.OverlapScoreCredit = &v }),
		},
		{
			names: named("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY"), field: cost + "overlapScoreCreditDecay",
			set: asNumber(1000, func(d *draft, v float64) { d.Cost.OverlapScoreCreditDecay = &v }),
		},
		{
			names: named("DYN_ROUTER_HOST_CACHE_HIT_WEIGHT"), field: cost + "hostCacheHitWeight",
			set: asNumber(1, func(d *draft, v float64) { d.Cost.HostCacheHitWeight = &v }),
		},
		{
			names: named("DYN_ROUTER_DISK_CACHE_HIT_WEIGHT"), field: cost + "diskCacheHitWeight",
			set: asNumber(1, func(d *draft, v float64) { d.Cost.DiskCacheHitWeight = &v }),
		},
		{
			names: named("DYN_SHARED_CACHE_TYPE"), field: cost + "sharedCacheType",
			set: asWord(map[string]func(*draft){
				"none":    func(d *draft) { d.Cost.SharedCacheType = v1alpha1.SharedCacheNone },
				"hicache": func(d *draft) { d.Cost.SharedCacheType = v1alpha1.SharedCacheExternal },
			}),
		},
		{
			names: named("DYN_SHARED_CACHE_MULTIPLIER"), field: cost + "sharedCacheMultiplier",
			set: asNumber(1, func(d *draft, v float64) { d.Cost.SharedCacheMultiplier = &v }),
		},
		{
			names: named("DYN_ROUTER_PREFILL_LOAD_SCALE"), field: cost + "prefillLoadScale",
			set: asNumber(1000, func(d *draft, v float64) { d.Cost.PrefillLoadScale = &v }),
		},
		{
			names: named("DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", "DYN_OVERLAP_SCORE_WEIGHT", "DYN_KV_OVERLAP_SCORE_WEIGHT"),
			field: cost + "prefillLoadScale, and of spec.cost.overlapScoreCredit where it is 0", set: asWeight,
		},
		{
			names: named("DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT"), field: cost + "decodeActiveRequestWeight",
			set: asNumber(1_000_000, func(d *draft, v float64) { d.Cost.DecodeActiveRequestWeight = &v }),
		},
		{
			names: named("DYN_ROUTER_TEMPERATURE"), field: cost + "temperature",
			set: asNumber(100, func(d *draft, v float64) { d.Cost.Temperature = &v }),
		},
		{
			names: named("DYN_ROUTER_ASSUME_KV_REUSE"), field: cost + "assumeKVReuse",
			set: asFlag(func(d *draft, v bool) { d.Cost.AssumeKVReuse = &v }),
		},
		{
			names: named("DYN_ROUTER_TRACK_PREFILL_TOKENS"), field: cost + "trackPrefillTokens",
			set: asFlag(func(d *draft, v bool) { d.Cost.TrackPrefillTokens = &v }),
		},
		{
			names: named("DYN_ROUTER_TRACK_ACTIVE_BLOCKS"), field: cost + "trackActiveBlocks",
			set: asFlag(func(d *draft, v bool) { d.Cost.TrackActiveBlocks = &v }),
		},
		{
			names: named("DYN_ROUTER_TRACK_OUTPUT_BLOCKS"), field: cost + "trackOutputBlocks",
			set: asFlag(func(d *draft, v bool) { d.Cost.TrackOutputBlocks = &v }),
		},
		{
			names: named("DYN_ROUTER_USE_KV_EVENTS", "DYN_USE_KV_EVENTS"), field: cost + "useKVEvents",
			set: asFlag(func(d *draft, v bool) { d.Cost.UseKVEvents = &v }),
		},
		{
			names: named("DYN_ROUTER_TTL_SECS"), field: cost + "routerTTL",
			set: asSeconds(24*time.Hour, func(d *draft, v v1alpha1.Duration) { d.Cost.RouterTTL = &v }),
		},
		{
			names: named("DYN_ROUTER_LOAD_AWARE"), field: cost + "overlapScoreCredit, useKVEvents, assumeKVReuse, trackActiveBlocks, trackPrefillTokens and sharedCacheType",
			set: asFlag(func(d *draft, v bool) { d.loadAware = v }),
		},
	}
}

// poolVariables set other fields of the spec.
func poolVariables() []variable {
	const split, admission = "spec.disaggregation.", "spec.admission."
	return []variable{
		{
			names: named("DYN_ROUTER_PREDICTED_TTL_SECS"), field: "spec.eventPlane.speculationTTL",
			set: asSeconds(time.Hour, func(d *draft, v v1alpha1.Duration) { d.EventPlane.SpeculationTTL = &v }),
		},
		{
			names: named("DYN_ROUTER_REPLICA_SYNC"), field: "spec.eventPlane.replicaSync",
			set: asFlag(func(d *draft, v bool) { d.EventPlane.ReplicaSync = &v }),
		},
		{
			names: named("DYN_ENFORCE_DISAGG"), field: split + "mode",
			set: asFlag(func(d *draft, v bool) {
				if v {
					d.Disaggregation.Mode = v1alpha1.DisaggregationRequired
				}
			}),
		},
		{
			names: named("DYN_ROUTER_CONDITIONAL_DISAGG"), field: split + "condition",
			set: asFlag(func(d *draft, v bool) { d.conditional = v }),
		},
		{
			names: named("DYN_ROUTER_CONDITIONAL_DISAGG_POLICY"), field: split + "condition, with DYN_ROUTER_CONDITIONAL_DISAGG",
			set: asWord(map[string]func(*draft){
				"isl_bounding": func(d *draft) { d.condition = v1alpha1.ConditionShortPrompt },
				"prefill_load": func(d *draft) { d.condition = v1alpha1.ConditionPrefillBusy },
				"isl_or_load":  func(d *draft) { d.condition = v1alpha1.ConditionEither },
			}),
		},
		{
			names: named("DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_THRESHOLD"), field: split + "effISLThreshold",
			set: asCount(0, 1_000_000_000, func(d *draft, v int64) { d.Disaggregation.EffISLThreshold = &v }),
		},
		{
			names: named("DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_RATIO_THRESHOLD"), field: split + "effISLRatioThreshold",
			set: asNumber(2, func(d *draft, v float64) { d.Disaggregation.EffISLRatioThreshold = &v }),
		},
		{
			names: named("DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD"), field: split + "prefillBusyThresholdFraction",
			set: orNone(asNumber(1_000_000, func(d *draft, v float64) { d.Disaggregation.PrefillBusyThresholdFraction = &v })),
		},
		{
			names: named("DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD"), field: admission + "activePrefillTokensThreshold",
			set: orNone(asCount(1, 1_000_000_000, func(d *draft, v int64) { d.Admission.ActivePrefillTokensThreshold = &v })),
		},
		{
			names: named("DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC"), field: admission + "activePrefillTokensThresholdFraction",
			set: orNone(asPositive(1_000_000, func(d *draft, v float64) { d.Admission.ActivePrefillTokensThresholdFraction = &v })),
		},
		{
			// A request waits while all workers are over either of the two. Dynamo also
			// takes 0, with which a worker has room only while no prompt token waits there
			// (dynamo.md 4.2).
			names: named("DYN_ROUTER_QUEUE_THRESHOLD"), field: admission + "activePrefillTokensThresholdFraction",
			set: orNone(asNumber(1_000_000, func(d *draft, v float64) {
				v = max(anyTokens, v)
				if old := d.Admission.ActivePrefillTokensThresholdFraction; old == nil || *old > v {
					d.Admission.ActivePrefillTokensThresholdFraction = &v
				}
			})),
		},
		{
			names: named("DYN_ROUTER_QUEUE_POLICY"), field: admission + "queue.policy",
			set: asWord(map[string]func(*draft){
				"fcfs": func(d *draft) { d.Admission.Queue.Policy = v1alpha1.QueueFCFS },
				"wspt": func(d *draft) { d.Admission.Queue.Policy = v1alpha1.QueueWSPT },
			}),
		},
		{
			names: named("DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD"), field: admission + "activeDecodeBlocksThresholdFraction",
			set: orNone(asPositive(1, func(d *draft, v float64) { d.Admission.ActiveDecodeBlocksThresholdFraction = &v })),
		},
	}
}

// idleVariables have no meaning here, or none yet. Their values are checked all the
// same: a mistake there is one in the deployment.
func idleVariables() []variable {
	flag := asFlag(func(*draft, bool) {})
	seconds := asSeconds(24*time.Hour, func(*draft, v1alpha1.Duration) {})
	anything := func(*draft, string) error { return nil }
	words := func(list ...string) func(*draft, string) error {
		m := map[string]func(*draft){}
		for _, w := range list {
			m[w] = func(*draft) {}
		}
		return asWord(m)
	}
	const (
		ownStream  = "whether events are kept in a stream is said by spec.eventPlane.jetStream"
		ownIndex   = "every picker has an index of its own, and asks no other"
		ownClasses = "classes of requests are listed in spec.cost.classes"
		ownHash    = "what requests are under way is told by spec.eventPlane.replicaSync, whose hashes are fixed"
		ownSession = "sessions are named by spec.sessionAffinity, and end with their requests"
		ownPlace   = "the picker is no part of a Dynamo namespace; which events count is said by spec.eventPlane.nats.namespace"
	)
	return []variable{
		{names: named("DYN_ROUTER_MODE"), why: "the picker always routes by what workers hold and by load", set: words(
			"round-robin", "random", "power-of-two", "kv", "direct", "least-loaded", "device-aware-weighted")},
		{names: named("DYN_ROUTER_DURABLE_KV_EVENTS"), why: ownStream, set: flag},
		{names: named("DYN_ROUTER_SNAPSHOT_THRESHOLD"), why: ownStream, set: asCount(1, math.MaxInt64, func(*draft, int64) {})},
		{names: named("DYN_ROUTER_RESET_STATES"), why: ownStream, set: flag},
		{names: named("DYN_ROUTER_EVENT_THREADS"), why: "events are read by as many threads as the process may use (GOMAXPROCS)", set: asCount(1, math.MaxInt32, func(*draft, int64) {})},
		{names: named("DYN_USE_REMOTE_INDEXER"), why: ownIndex, set: flag},
		{names: named("DYN_SERVE_INDEXER"), why: ownIndex, set: flag},
		{names: named("DYN_ROUTER_MIN_INITIAL_WORKERS"), why: "requests are taken as soon as the pool has a worker", set: asCount(0, math.MaxInt32, func(*draft, int64) {})},
		{names: named("DYN_ROUTER_PREFILL_LOAD_MODEL"), why: "the time of a prefill is learned, not modelled", set: words("none", "aic")},
		{names: named("DYN_ROUTER_APPROXIMATE_CACHE_POLICY"), why: "in the approximate mode prompts are forgotten by their age, and the oldest first", set: words("ttl", "lru")},
		{names: named("DYN_ADMISSION_CONTROL"), why: "workers are busy by the thresholds of spec.admission", set: words("token-capacity", "none")},
		{names: named("DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS"), why: "what workers hold is looked up again at every try", set: seconds},
		{names: named("DYN_ROUTER_CONDITIONAL_DISAGG_DECODE_BUSY_THRESHOLD"), why: "busy decode workers are left out by spec.admission", set: orNone(asNumber(math.MaxFloat64, func(*draft, float64) {}))},
		{names: named("DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG"), why: "its keys are read from variables of their own, such as DYN_ROUTER_CONDITIONAL_DISAGG_POLICY", set: anything},
		{names: named("DYN_ROUTER_POLICY_CONFIG"), why: ownClasses, set: anything},
		{names: named("DYN_ROUTER_PREFILL_POLICY"), why: ownClasses, set: anything},
		{names: named("DYN_ROUTER_DECODE_POLICY"), why: ownClasses, set: anything},
		{names: named("DYN_ROUTER_WORKER_SELECTION_POLICY"), why: "workers are chosen by spec.cost.model", set: anything},
		{names: named("DYN_ROUTER_TRACKING_HASH"), why: ownHash, set: anything},
		{names: named("DYN_ROUTER_TRACKING_HASH_KEY_FILE", "DYN_ROUTER_TRACKING_KEY_FILE"), why: ownHash, set: anything},
		{names: named("DYN_ROUTER_TRACKING_HASH_KEY_ID", "DYN_ROUTER_TRACKING_KEY_ID"), why: ownHash, set: anything},
		{names: named("DYN_ROUTER_SESSION_AFFINITY_TTL_SECS"), why: ownSession, set: seconds},
		{names: named("DYN_ROUTER_SESSION_AFFINITY_MODE"), why: ownSession, set: words("hard", "soft")},
		{names: named("DYN_ROUTER_NAMESPACE"), why: ownPlace, set: anything},
		{names: named("DYN_ROUTER_ENDPOINT"), why: ownPlace, set: anything},
		{names: named("DYN_ROUTER_BLOCK_SIZE"), why: "the block size is spec.blockSize", set: asCount(1, 65536, func(*draft, int64) {})},
	}
}

// asWeight reads the older name of two knobs: the scale and, where it is 0, the
// credit (dynamo.md 4.2).
func asWeight(d *draft, value string) error {
	var weight float64
	if err := asNumber(1000, func(_ *draft, v float64) { weight = v })(d, value); err != nil {
		return err
	}
	if scale := d.Cost.PrefillLoadScale; scale != nil && *scale != weight {
		return errors.New("contradicts DYN_ROUTER_PREFILL_LOAD_SCALE, its new name; remove this one")
	}
	d.Cost.PrefillLoadScale = &weight
	if weight > 0 {
		return nil
	}
	if credit := d.Cost.OverlapScoreCredit; credit != nil && *credit != 0 {
		return errors.New("0 also means a credit of 0, which contradicts DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT; remove this one")
	}
	d.Cost.OverlapScoreCredit = new(0.0)
	return nil
}

// asNumber reads a number from 0 to most.
func asNumber(most float64, to func(*draft, float64)) func(*draft, string) error {
	return func(d *draft, value string) error {
		v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(v >= 0 && v <= most) || math.IsInf(v, 0) { // not a number is refused, too
			return fmt.Errorf("must be a number%s", upTo(most))
		}
		to(d, v)
		return nil
	}
}

// upTo says what numbers are allowed.
func upTo(most float64) string {
	if most == math.MaxFloat64 {
		return ", 0 or more"
	}
	return " from 0 to " + strconv.FormatFloat(most, 'f', -1, 64)
}

// asPositive is for bounds, of which 0 would mean none here and everything there.
func asPositive(most float64, to func(*draft, float64)) func(*draft, string) error {
	return func(d *draft, value string) error {
		var v float64
		err := asNumber(most, func(_ *draft, n float64) { v = n })(d, value)
		if err != nil || v == 0 {
			return fmt.Errorf("must be a number above 0, up to %s, or none", strconv.FormatFloat(most, 'f', -1, 64))
		}
		to(d, v)
		return nil
	}
}

func asCount(least, most int64, to func(*draft, int64)) func(*draft, string) error {
	return func(d *draft, value string) error {
		v, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil || v < least || v > most {
			return fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		to(d, v)
		return nil
	}
}

func asSeconds(most time.Duration, to func(*draft, v1alpha1.Duration)) func(*draft, string) error {
	return func(d *draft, value string) error {
		err := asNumber(most.Seconds(), func(d *draft, v float64) {
			to(d, v1alpha1.Duration{Duration: time.Duration(v * float64(time.Second))})
		})(d, value)
		if err != nil {
			return fmt.Errorf("%w, in seconds, without a unit", err)
		}
		return nil
	}
}

// asFlag reads the words that Dynamo takes.
func asFlag(to func(*draft, bool)) func(*draft, string) error {
	return func(d *draft, value string) error {
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "1", "true", "yes", "on":
			to(d, true)
		case "0", "false", "no", "off":
			to(d, false)
		default:
			return errors.New("must be true or false")
		}
		return nil
	}
}

func asWord(words map[string]func(*draft)) func(*draft, string) error {
	return func(d *draft, value string) error {
		set, ok := words[strings.TrimSpace(value)]
		if !ok {
			return fmt.Errorf("must be one of %s", strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
		set(d)
		return nil
	}
}

// orNone also takes the word for no bound.
func orNone(set func(*draft, string) error) func(*draft, string) error {
	return func(d *draft, value string) error {
		if strings.EqualFold(strings.TrimSpace(value), "none") {
			return nil
		}
		return set(d, value)
	}
}
