package v1alpha1

import "time"

// maxTransfer is far above what moves for one request, in bytes.
const maxTransfer = 1_000_000_000_000

// NeedsPair says whether a request is served only when both workers are named.
func (s *RoutingPolicySpec) NeedsPair() bool {
	switch s.Disaggregation.NeedsPair {
	case PairAlways:
		return true
	case PairNever:
		return false
	case PairAuto:
	}
	return s.Handoff.Preset == HandoffDynamo
}

// Conditional says whether a prompt may stay on a decode worker because a split would
// not pay.
func (d *DisaggregationSpec) Conditional() bool {
	return d.Mode == DisaggregationWhenReady && d.Condition != "" && d.Condition != ConditionNever
}

func (d *DisaggregationSpec) check(p *problems, path string) {
	checkEnum(p, path+".mode", d.Mode, DisaggregationWhenReady, DisaggregationRequired, DisaggregationNever)
	checkEnum(p, path+".order", d.Order, OrderJoint, OrderDecodeFirst)
	checkEnum(p, path+".condition", d.Condition,
		ConditionNever, ConditionShortPrompt, ConditionPrefillBusy, ConditionEither, ConditionEstimatedTime)
	checkCount(p, path+".effISLThreshold", d.EffISLThreshold, maxBound)
	checkNumber(p, path+".effISLRatioThreshold", d.EffISLRatioThreshold, 2)
	d.checkBusy(p, path)
	checkEnum(p, path+".needsPair", d.NeedsPair, PairAuto, PairAlways, PairNever)
	d.Transfer.check(p, path+".transfer")
}

// checkBusy checks the bounds of a prefill worker. The condition may come from the
// environment, and then so should its bound.
func (d *DisaggregationSpec) checkBusy(p *problems, path string) {
	checkCount(p, path+".prefillBusyThreshold", d.PrefillBusyThreshold, maxBound)
	checkNumber(p, path+".prefillBusyThresholdFraction", d.PrefillBusyThresholdFraction, 1_000_000)
	busy := d.Condition == ConditionPrefillBusy || d.Condition == ConditionEither
	if busy && d.PrefillBusyThreshold == nil && d.PrefillBusyThresholdFraction == nil {
		p.add(path+".prefillBusyThreshold", "this or prefillBusyThresholdFraction is required with condition %s: how many prompt tokens may wait on a prefill worker before it is busy; where the condition comes from the environment (DYN_ROUTER_CONDITIONAL_DISAGG_POLICY), set DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD there", d.Condition)
	}
}

func (t *TransferSpec) check(p *problems, path string) {
	checkCount(p, path+".bytesPerToken", &t.BytesPerToken, maxTransfer)
	checkCount(p, path+".bytesPerRequest", &t.BytesPerRequest, maxTransfer)
	checkDuration(p, path+".serialLatency", t.SerialLatency, 0, time.Minute)
	t.Bandwidth.check(p, path+".bandwidth")
}

// check also sees to it that a pair never costs less for being further apart: what
// is left out costs nothing.
func (b *BandwidthSpec) check(p *problems, path string) {
	type place struct {
		name string
		rate *ByteRate
	}
	var nearer place // the last that is set
	for _, at := range []place{{"host", b.Host}, {"fabric", b.Fabric}, {"rack", b.Rack}, {"zone", b.Zone}, {"elsewhere", b.Elsewhere}} {
		if at.rate == nil {
			if nearer.rate != nil {
				p.add(path+"."+at.name, "required with %s, which is nearer: left out it would cost nothing", nearer.name)
			}
			continue
		}
		got := at.rate.BytesPerSecond
		switch {
		case got <= 0 || got > maxRate:
			p.add(path+"."+at.name, "must be above 0 and at most 1000T bytes per second, not %s", number(got))
			continue
		case nearer.rate != nil && got > nearer.rate.BytesPerSecond:
			p.add(path+"."+at.name, "%s bytes per second are more than the %s of %s, which is nearer; a nearer place must not be slower than a further one",
				number(got), number(nearer.rate.BytesPerSecond), nearer.name)
		}
		nearer = at
	}
}

func (t *TopologySpec) check(p *problems, path string) {
	checkEnum(p, path+".labelsFrom", t.LabelsFrom, LabelsFromPods, LabelsFromPodsAndNodes)
	for _, f := range []struct {
		name string
		list []string
	}{
		{"zoneLabels", t.ZoneLabels},
		{"rackLabels", t.RackLabels},
		{"hostLabels", t.HostLabels},
		{"fabricLabels", t.FabricLabels},
		{"connectorLabels", t.ConnectorLabels},
	} {
		distinct(p, map[string]string{}, path+"."+f.name, f.list)
	}
}
