package app

import (
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/index"
)

// approximateTTL is how long decisions are remembered where no events tell what
// workers hold (dynamo.md 4.2, DYN_ROUTER_TTL_SECS).
const approximateTTL = 120 * time.Second

// guessTTL is how long decisions are remembered, and whether they are all that is
// known of what workers hold. Beside events they only bridge the time until those
// arrive. Where nothing is credited, nothing is remembered.
func guessTTL(spec *v1alpha1.RoutingPolicySpec) (ttl time.Duration, alone bool) {
	alone = !hears(spec)
	switch {
	case spec.Cost.LoadOnly():
		return 0, alone
	case alone:
		return routerTTL(spec), true
	case spec.EventPlane.SpeculationTTL == nil:
		return 0, false
	}
	return spec.EventPlane.SpeculationTTL.Duration, false
}

// newGuesses returns the memory of decisions for a spec.
func newGuesses(spec *v1alpha1.RoutingPolicySpec) *index.Speculation {
	ttl, alone := guessTTL(spec)
	if alone {
		return index.NewApproximation(ttl, index.ApproximationBytes)
	}
	return index.NewSpeculation(ttl)
}

// sameGuesses says whether what is remembered under one spec is worth as much under
// another. The workers must be those of one event plane.
func sameGuesses(a, b *v1alpha1.RoutingPolicySpec) bool {
	ttl, alone := guessTTL(a)
	otherTTL, otherAlone := guessTTL(b)
	return ttl == otherTTL && alone == otherAlone
}

func routerTTL(spec *v1alpha1.RoutingPolicySpec) time.Duration {
	if t := spec.Cost.RouterTTL; t != nil {
		return t.Duration
	}
	return approximateTTL
}

// textTTL is how long decisions about prompts without token ids are remembered by
// their texts. No event tells of those.
func textTTL(spec *v1alpha1.RoutingPolicySpec) time.Duration {
	if spec.Cost.LoadOnly() {
		return 0
	}
	return routerTTL(spec)
}

// textBytes bounds the memory of texts, which have a run where a prompt has several
// blocks.
const textBytes = index.ApproximationBytes / 4
