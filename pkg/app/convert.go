package app

import (
	"strings"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/render"
)

// handoff turns the configured handoff into headers.
func handoff(spec *v1alpha1.HandoffSpec) extproc.Handoff {
	if len(spec.Headers) == 0 {
		switch spec.Preset {
		case v1alpha1.HandoffDynamo:
			return extproc.DynamoHandoff()
		case v1alpha1.HandoffNone:
			return nil
		case v1alpha1.HandoffDefault:
		}
		return extproc.DefaultHandoff()
	}
	values := map[v1alpha1.HandoffValue]extproc.HandoffValue{
		v1alpha1.PrefillEndpoint:   extproc.PrefillEndpoint,
		v1alpha1.PrefillInstanceID: extproc.PrefillInstanceID,
		v1alpha1.PrefillRank:       extproc.PrefillRank,
		v1alpha1.DecodeEndpoint:    extproc.DecodeEndpoint,
		v1alpha1.DecodeInstanceID:  extproc.DecodeInstanceID,
		v1alpha1.DecodeRank:        extproc.DecodeRank,
		v1alpha1.RoutingMode:       extproc.RoutingMode,
		v1alpha1.RequestID:         extproc.RequestID,
	}
	var h extproc.Handoff
	for _, header := range spec.Headers {
		h = append(h, extproc.HandoffHeader{Name: strings.ToLower(header.Name), Value: values[header.Value]})
	}
	return h
}

func adapters(spec *v1alpha1.RoutingPolicySpec) map[string]bool {
	m := map[string]bool{}
	for _, name := range spec.Adapters {
		m[name] = true
	}
	return m
}

// newTokenizer returns what asks engines for token ids, or nil when that is
// turned off.
func newTokenizer(spec *v1alpha1.TokenizerSpec, picker *pick.Picker) (*render.Client, error) {
	if spec.Disabled {
		return nil, nil
	}
	protocols := map[v1alpha1.TokenizeProtocol]render.Protocol{
		v1alpha1.TokenizeAuto:     render.Auto,
		v1alpha1.TokenizeRender:   render.Render,
		v1alpha1.TokenizeTokenize: render.Tokenize,
	}
	return render.New(render.Config{
		URLs:            spec.Engine.URLs,
		Pool:            func() []string { return engines(picker.Fleet()) },
		Protocol:        protocols[spec.Engine.Protocol],
		Timeout:         spec.Engine.Timeout.Duration,
		BreakerFailures: spec.Engine.Breaker.Failures,
		BreakerCooldown: spec.Engine.Breaker.Cooldown.Duration,
	})
}

// engines returns the base URLs of the workers that serve the OpenAI API for the
// pool. Workers that share an endpoint are asked once.
func engines(s *fleet.Snapshot) []string {
	var urls []string
	seen := map[string]bool{}
	for _, w := range s.Workers {
		url := "http://" + w.Endpoint.String()
		if w.Role != fleet.Prefill && !seen[url] {
			seen[url] = true
			urls = append(urls, url)
		}
	}
	return urls
}
