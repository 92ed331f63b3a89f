package dynamo

// Add adds what another decoder has seen.
func (s *DecodeStats) Add(o DecodeStats) {
	s.Messages += o.Messages
	s.Events += o.Events
	s.BadMessages += o.BadMessages
	s.BadEvents += o.BadEvents
	s.UnknownFields += o.UnknownFields
	s.UnknownTiers += o.UnknownTiers
	s.EmptyStores += o.EmptyStores
}
