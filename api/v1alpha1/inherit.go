package v1alpha1

// FillFrom sets what a spec leaves out to what an environment says: a spec of which
// only these fields are set. Call it before Default. What the spec says counts, and
// the environment's knobs do not touch one that asks for the model Congestion.
func (s *RoutingPolicySpec) FillFrom(environment *RoutingPolicySpec) {
	if s.Cost.Model != ModelCongestion {
		s.Cost.fillKnobs(&environment.Cost)
	}
	fill(&s.Cost.UseKVEvents, environment.Cost.UseKVEvents)
	fill(&s.Cost.RouterTTL, environment.Cost.RouterTTL)
	fill(&s.EventPlane.SpeculationTTL, environment.EventPlane.SpeculationTTL)
	if !s.EventPlane.Disabled { // which replicaSync needs
		fill(&s.EventPlane.ReplicaSync, environment.EventPlane.ReplicaSync)
	}
	d, e := &s.Disaggregation, &environment.Disaggregation
	set(&d.Mode, e.Mode)
	set(&d.Condition, e.Condition)
	fill(&d.EffISLThreshold, e.EffISLThreshold)
	fill(&d.EffISLRatioThreshold, e.EffISLRatioThreshold)
	if d.PrefillBusyThreshold == nil {
		fill(&d.PrefillBusyThresholdFraction, e.PrefillBusyThresholdFraction)
	}
	a, b := &s.Admission, &environment.Admission
	set(&a.Queue.Policy, b.Queue.Policy)
	fill(&a.ActivePrefillTokensThreshold, b.ActivePrefillTokensThreshold)
	fill(&a.ActivePrefillTokensThresholdFraction, b.ActivePrefillTokensThresholdFraction)
	fill(&a.ActiveDecodeBlocksThreshold, b.ActiveDecodeBlocksThreshold)
	fill(&a.ActiveDecodeBlocksThresholdFraction, b.ActiveDecodeBlocksThresholdFraction)
}

// fillKnobs sets the knobs that are left out.
func (c *CostSpec) fillKnobs(e *CostSpec) {
	fill(&c.OverlapScoreCredit, e.OverlapScoreCredit)
	fill(&c.OverlapScoreCreditDecay, e.OverlapScoreCreditDecay)
	fill(&c.HostCacheHitWeight, e.HostCacheHitWeight)
	fill(&c.DiskCacheHitWeight, e.DiskCacheHitWeight)
	set(&c.SharedCacheType, e.SharedCacheType)
	fill(&c.SharedCacheMultiplier, e.SharedCacheMultiplier)
	fill(&c.PrefillLoadScale, e.PrefillLoadScale)
	fill(&c.DecodeActiveRequestWeight, e.DecodeActiveRequestWeight)
	fill(&c.Temperature, e.Temperature)
	fill(&c.AssumeKVReuse, e.AssumeKVReuse)
	fill(&c.TrackPrefillTokens, e.TrackPrefillTokens)
	fill(&c.TrackActiveBlocks, e.TrackActiveBlocks)
	fill(&c.TrackOutputBlocks, e.TrackOutputBlocks)
}

// fill gives a field that is left out a value of its own.
func fill[T any](field **T, from *T) {
	if *field == nil && from != nil {
		*field = new(*from)
	}
}
