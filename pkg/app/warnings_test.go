package app

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// What a spec asks for in vain of the workers of a list is named; what they do
// serve, or what is not asked for, is not.
func TestWarnings(t *testing.T) {
	worker := func(id uint64, rank uint32, role fleet.Role, says fleet.Advertised) fleet.Worker {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(id)}), 8000)
		return fleet.Worker{Key: fleet.Key{ID: id, Rank: rank}, Name: "w", Endpoint: at, Role: role, Says: fleet.Say(says)}
	}
	steps, blocks := fleet.Advertised{MaxBatchedTokens: 8192}, fleet.Advertised{KVBlocks: 1000}
	pair := func(prefill, decode fleet.Advertised) []fleet.Worker {
		return []fleet.Worker{worker(1, 0, fleet.Prefill, prefill), worker(2, 0, fleet.Decode, decode)}
	}
	ranks := []fleet.Worker{worker(1, 0, fleet.Aggregated, steps), worker(1, 1, fleet.Aggregated, steps)}
	admission := func(prefill, decode float64) spec {
		return spec{Admission: v1alpha1.AdmissionSpec{ActivePrefillTokensThresholdFraction: &prefill, ActiveDecodeBlocksThresholdFraction: &decode}}
	}
	busy := func(c v1alpha1.SplitCondition) spec {
		return spec{Disaggregation: v1alpha1.DisaggregationSpec{Condition: c, PrefillBusyThresholdFraction: new(0.5)}}
	}
	off := admission(0, 0.9)
	off.EngineMetrics.Enabled = new(false)
	headers := func(values ...v1alpha1.HandoffValue) (s spec) {
		for _, v := range values {
			s.Handoff.Headers = append(s.Handoff.Headers, v1alpha1.HandoffHeader{Name: "x-" + strings.ToLower(string(v)), Value: v})
		}
		return s
	}
	for name, tc := range map[string]struct {
		spec    spec
		workers []fleet.Worker
		want    string // a part of the only warning; empty for none
	}{
		"nothing asked for":             {spec{}, pair(fleet.Advertised{}, fleet.Advertised{}), ""},
		"no workers":                    {admission(4, 0.9), nil, ""},
		"steps not known":               {admission(4, 0), pair(blocks, blocks), "activePrefillTokensThresholdFraction (or DYN_ROUTER_QUEUE_THRESHOLD"},
		"steps of one":                  {admission(4, 0), pair(fleet.Advertised{}, steps), ""},
		"blocks from metrics":           {admission(0, 0.9), pair(steps, steps), ""},
		"blocks not known":              {off, pair(steps, steps), "activeDecodeBlocksThresholdFraction"},
		"blocks of one":                 {off, pair(steps, blocks), ""},
		"busy by steps not known":       {busy(v1alpha1.ConditionEither), pair(blocks, steps), "prefillBusyThresholdFraction"},
		"busy by steps":                 {busy(v1alpha1.ConditionEither), pair(steps, blocks), ""},
		"busy without a condition":      {busy(v1alpha1.ConditionNever), pair(blocks, blocks), ""},
		"busy without prefill workers":  {busy(v1alpha1.ConditionEither), ranks[:1], ""},
		"ranks behind one endpoint":     {spec{}, ranks, `share the endpoint 10.0.0.1:8000 of worker "w"`},
		"ranks that a header names":     {headers(v1alpha1.DecodeRank), ranks, ""},
		"one rank":                      {spec{}, ranks[:1], ""},
		"a prefill worker without name": {headers(v1alpha1.DecodeRank), pair(steps, steps), "no header names the one that was picked"},
		"a prefill worker with a name":  {headers(v1alpha1.PrefillEndpoint), pair(steps, steps), ""},
	} {
		pool, err := fleet.NewSnapshot(tc.workers)
		if err != nil {
			t.Fatal(err)
		}
		tc.spec.Default()
		got := Warnings(&tc.spec, pool)
		if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
