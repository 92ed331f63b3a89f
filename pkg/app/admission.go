package app

import (
	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/admission"
	"github.com/warmpath/warmpath/pkg/extproc"
)

// admit says in a routing what happens to requests that find all workers busy, or a
// worker that fails.
func admit(r *extproc.Routing, spec *v1alpha1.AdmissionSpec) {
	q := &spec.Queue
	r.Queueing = extproc.Queueing{MaxWait: q.MaxWait.Duration, MaxRequests: q.MaxRequests}
	if q.Policy == v1alpha1.QueueWSPT {
		r.Queueing.Policy = admission.WSPT
	}
	r.Fallback = spec.FallbackEndpoints
	r.Objectives = make(map[string]int, len(spec.Objectives))
	for _, o := range spec.Objectives {
		r.Objectives[o.Name] = o.Priority
	}
}
