package v1alpha1

import "time"

// maxTransfer is far above what moves for one request, in bytes.
const maxTransfer = 1_000_000_000_000

func (d *DisaggregationSpec) check(p *problems, path string) {
	checkEnum(p, path+".mode", d.Mode, DisaggregationWhenReady, DisaggregationRequired, DisaggregationNever)
	checkEnum(p, path+".order", d.Order, OrderJoint, OrderDecodeFirst)
	checkEnum(p, path+".condition", d.Condition,
		ConditionNever, ConditionShortPrompt, ConditionPrefillBusy, ConditionEither, ConditionEstimatedTime)
	checkCount(p, path+".effISLThreshold", d.EffISLThreshold, maxBound)
	checkNumber(p, path+".effISLRatioThreshold", d.EffISLRatioThreshold, 1)
	checkCount(p, path+".prefillBusyThreshold", d.PrefillBusyThreshold, maxBound)
	if busy := d.Condition == ConditionPrefillBusy || d.Condition == ConditionEither; busy && d.PrefillBusyThreshold == nil {
		p.add(path+".prefillBusyThreshold", "required with condition %s: how many prompt tokens may wait on a prefill worker before it is busy", d.Condition)
	}
	checkEnum(p, path+".needsPair", d.NeedsPair, PairAuto, PairAlways, PairNever)
	d.Transfer.check(p, path+".transfer")
}

func (t *TransferSpec) check(p *problems, path string) {
	checkCount(p, path+".bytesPerToken", &t.BytesPerToken, maxTransfer)
	checkCount(p, path+".bytesPerRequest", &t.BytesPerRequest, maxTransfer)
	checkDuration(p, path+".serialLatency", t.SerialLatency, 0, time.Minute)
	b := &t.Bandwidth
	for _, f := range []struct {
		name string
		rate *ByteRate
	}{{"host", b.Host}, {"fabric", b.Fabric}, {"rack", b.Rack}, {"zone", b.Zone}, {"elsewhere", b.Elsewhere}} {
		if f.rate != nil && (f.rate.BytesPerSecond <= 0 || f.rate.BytesPerSecond > maxRate) {
			p.add(path+".bandwidth."+f.name, "must be above 0 and at most 1000T bytes per second, not %s", number(f.rate.BytesPerSecond))
		}
	}
}

func (t *TopologySpec) check(p *problems, path string) {
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
