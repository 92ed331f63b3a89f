package fleet

import "slices"

// RoleRules say which label values mean which role.
type RoleRules struct {
	// Labels are the label keys to look at, in order of preference.
	Labels []string
	// Values of those labels per role.
	Prefill    []string
	Decode     []string
	Aggregated []string
}

// Role returns the role that a worker's labels give. The first label that says
// Prefill or Decode wins; a label that says Aggregated counts only when no other
// is more specific, because Dynamo's operator writes the type "worker" on
// workers whose sub-type then names the half (dynamo.md 3.3). ok is false when
// no label says anything.
func (r RoleRules) Role(labels map[string]string) (role Role, ok bool) {
	for _, key := range r.Labels {
		value, present := labels[key]
		if !present {
			continue
		}
		switch {
		case slices.Contains(r.Prefill, value):
			return Prefill, true
		case slices.Contains(r.Decode, value):
			return Decode, true
		case slices.Contains(r.Aggregated, value):
			ok = true
		}
	}
	return Aggregated, ok
}
