package app

import (
	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// pickOptions turns what the policy says of costs, splits and bounds into options
// of decisions. What it leaves out is as pick.DefaultOptions has it.
func pickOptions(spec *v1alpha1.RoutingPolicySpec) pick.Options {
	o := pick.DefaultOptions()
	if spec.Cost.Model == v1alpha1.ModelDynamo {
		o.Model = pick.Dynamo
	}
	o.Dynamo = dynamoKnobs(&spec.Cost)
	o.Classes = classes(&spec.Cost)
	o.Split = splitOptions(spec)
	o.Transfer = transferOptions(&spec.Disaggregation.Transfer)
	a := &spec.Admission
	o.MaxPrefillTokens = int(valueOf(a.ActivePrefillTokensThreshold))
	o.MaxDecodeBlocks = int(valueOf(a.ActiveDecodeBlocksThreshold))
	o.MaxPrefillShare = valueOf(a.ActivePrefillTokensThresholdFraction)
	o.MaxBlocksShare = valueOf(a.ActiveDecodeBlocksThresholdFraction)
	return o
}

func dynamoKnobs(c *v1alpha1.CostSpec) pick.DynamoKnobs {
	k := pick.DefaultDynamoKnobs()
	setFrom(&k.OverlapScoreCredit, c.OverlapScoreCredit)
	setFrom(&k.OverlapScoreCreditDecay, c.OverlapScoreCreditDecay)
	setFrom(&k.HostCacheHitWeight, c.HostCacheHitWeight)
	setFrom(&k.DiskCacheHitWeight, c.DiskCacheHitWeight)
	k.SharedCache = c.SharedCacheType == v1alpha1.SharedCacheExternal
	setFrom(&k.SharedCacheMultiplier, c.SharedCacheMultiplier)
	setFrom(&k.PrefillLoadScale, c.PrefillLoadScale)
	setFrom(&k.DecodeActiveRequestWeight, c.DecodeActiveRequestWeight)
	setFrom(&k.Temperature, c.Temperature)
	k.IgnoreKVReuse = isFalse(c.AssumeKVReuse)
	k.IgnorePrefill = isFalse(c.TrackPrefillTokens)
	k.IgnoreActiveBlocks = isFalse(c.TrackActiveBlocks)
	setFrom(&k.TrackOutputBlocks, c.TrackOutputBlocks)
	return k
}

// classes is nil where there are none: then no request is asked for its class.
func classes(c *v1alpha1.CostSpec) map[string]pick.ClassKnobs {
	if len(c.Classes) == 0 {
		return nil
	}
	m := make(map[string]pick.ClassKnobs, len(c.Classes))
	for i := range c.Classes {
		k := &c.Classes[i]
		m[k.Name] = pick.ClassKnobs{
			OverlapScoreCredit: k.OverlapScoreCredit, PrefillLoadScale: k.PrefillLoadScale, Temperature: k.Temperature,
		}
	}
	return m
}

// classHeader is the header that names the class of a request, empty where no class
// would make a difference.
func classHeader(c *v1alpha1.CostSpec) string {
	if len(c.Classes) == 0 {
		return ""
	}
	return c.ClassHeader
}

// splitOptions are those of the disaggregation. A policy that requires a split has
// no condition: none could be met.
func splitOptions(spec *v1alpha1.RoutingPolicySpec) pick.SplitOptions {
	d := &spec.Disaggregation
	o := pick.DefaultOptions().Split
	o.Mode = map[v1alpha1.DisaggregationMode]pick.Split{
		v1alpha1.DisaggregationWhenReady: pick.SplitWhenReady,
		v1alpha1.DisaggregationRequired:  pick.SplitRequired,
		v1alpha1.DisaggregationNever:     pick.SplitNever,
	}[d.Mode]
	if d.Order == v1alpha1.OrderDecodeFirst {
		o.Order = pick.DecodeFirst
	}
	if d.Conditional() {
		o.Condition = map[v1alpha1.SplitCondition]pick.Condition{
			v1alpha1.ConditionShortPrompt:   pick.IfShort,
			v1alpha1.ConditionPrefillBusy:   pick.IfPrefillBusy,
			v1alpha1.ConditionEither:        pick.IfEither,
			v1alpha1.ConditionEstimatedTime: pick.IfFaster,
		}[d.Condition]
	}
	if d.EffISLThreshold != nil {
		o.ShortTokens = int(*d.EffISLThreshold)
	}
	setFrom(&o.ShortRatio, d.EffISLRatioThreshold)
	o.BusyPrefillTokens, o.BusyPrefillShare = busyPrefill(d)
	o.NeedsPair = spec.NeedsPair()
	return o
}

// anyTokens is a share of the tokens of a step that a single token is above, for
// bounds of 0: as an option of decisions 0 is no bound.
const anyTokens = 1e-12

// busyPrefill are the bounds of a prefill worker. One that is left out binds nothing.
// In tokens the least one is 1: what waits are whole prompts.
func busyPrefill(d *v1alpha1.DisaggregationSpec) (tokens int, share float64) {
	if d.PrefillBusyThreshold != nil {
		tokens = max(1, int(*d.PrefillBusyThreshold))
	}
	if d.PrefillBusyThresholdFraction != nil {
		share = max(anyTokens, *d.PrefillBusyThresholdFraction)
	}
	return tokens, share
}

func transferOptions(t *v1alpha1.TransferSpec) pick.TransferOptions {
	o := pick.TransferOptions{
		BytesPerToken: float64(t.BytesPerToken), BytesPerPrompt: float64(t.BytesPerRequest), SerialSeconds: t.SerialLatency.Seconds(),
	}
	b := &t.Bandwidth
	for distance, rate := range map[fleet.Distance]*v1alpha1.ByteRate{
		fleet.SameHost: b.Host, fleet.SameFabric: b.Fabric, fleet.SameRack: b.Rack, fleet.SameZone: b.Zone, fleet.Elsewhere: b.Elsewhere,
	} {
		o.BytesPerSecond[distance] = valueOf(rate).BytesPerSecond
	}
	return o
}

// valueOf is what a field says, zero where it is left out.
func valueOf[T any](field *T) (v T) {
	if field != nil {
		v = *field
	}
	return v
}

// setFrom sets what a field says, and nothing where it is left out.
func setFrom[T any](to, field *T) {
	if field != nil {
		*to = *field
	}
}

func isFalse(field *bool) bool { return field != nil && !*field }
