package app

import (
	"fmt"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Warnings say what of a valid spec has no effect, or costs its benefit, with the
// workers of a list. An empty list is none to judge by.
func Warnings(spec *v1alpha1.RoutingPolicySpec, s *fleet.Snapshot) (list []string) {
	if len(s.Workers) == 0 {
		return nil
	}
	list = idleShares(spec, s)
	h := handoff(&spec.Handoff)
	if prefillUnnamed(h, s) {
		list = append(list, "spec.handoff: the list has prefill workers, but no header names the one that was picked")
	}
	if w, ok := rankUnnamed(h, s); ok {
		list = append(list, fmt.Sprintf(
			"spec.handoff: several data-parallel ranks share the endpoint %s of worker %q, but no header names the one that was picked; add one such as {name: x-data-parallel-rank, value: DecodeRank} to headers, or give each rank a port",
			w.Endpoint, w.Name))
	}
	return list
}

// idleShares reports bounds that are shares of what no worker says that it has. KV
// blocks may still be known from the engines' metrics, once these are read.
func idleShares(spec *v1alpha1.RoutingPolicySpec, s *fleet.Snapshot) (list []string) {
	var steps, prefillSteps, blocks bool
	for i := range s.Workers {
		w := &s.Workers[i]
		says := w.Says.Advertised()
		steps = steps || says.MaxBatchedTokens > 0
		prefillSteps = prefillSteps || says.MaxBatchedTokens > 0 && w.Role == fleet.Prefill
		blocks = blocks || says.KVBlocks > 0
	}
	a, d := &spec.Admission, &spec.Disaggregation
	add := func(field, variable, who, missing string) {
		list = append(list, fmt.Sprintf("%s (or %s) has no effect: no %s of the list says its %s", field, variable, who, missing))
	}
	if valueOf(a.ActivePrefillTokensThresholdFraction) > 0 && !steps {
		add("spec.admission.activePrefillTokensThresholdFraction", "DYN_ROUTER_QUEUE_THRESHOLD, DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC", "worker", "maxBatchedTokens")
	}
	if d.Conditional() && d.PrefillBusyThresholdFraction != nil && s.Count(fleet.Prefill) > 0 && !prefillSteps {
		add("spec.disaggregation.prefillBusyThresholdFraction", "DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD", "prefill worker", "maxBatchedTokens")
	}
	if valueOf(a.ActiveDecodeBlocksThresholdFraction) > 0 && !blocks && isFalse(spec.EngineMetrics.Enabled) {
		add("spec.admission.activeDecodeBlocksThresholdFraction", "DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD", "worker", "kvBlocks, and spec.engineMetrics is off")
	}
	return list
}

// prefillUnnamed says whether no header names the prefill worker that was picked.
func prefillUnnamed(h extproc.Handoff, s *fleet.Snapshot) bool {
	return s.Count(fleet.Prefill) > 0 && !h.Names(extproc.PrefillEndpoint, extproc.PrefillInstanceID)
}

// rankUnnamed returns a worker that shares its endpoint with another rank, if no
// header names the rank that was picked.
func rankUnnamed(h extproc.Handoff, s *fleet.Snapshot) (fleet.Worker, bool) {
	if h.Names(extproc.DecodeRank, extproc.PrefillRank) {
		return fleet.Worker{}, false
	}
	return sharedEndpoint(s)
}
