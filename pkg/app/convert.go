package app

import (
	"strings"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/extproc"
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

// security turns the configured ways to sign in and to encrypt into those of the
// event plane.
func security(spec *v1alpha1.NATSSpec) eventplane.Security {
	s := eventplane.Security{
		CredentialsFile: spec.CredentialsFile,
		NKeyFile:        spec.NKeyFile,
		UserFile:        spec.UserFile,
		PasswordFile:    spec.PasswordFile,
		TokenFile:       spec.TokenFile,
	}
	if t := spec.TLS; t != nil {
		s.TLS = new(eventplane.TLS(*t))
	}
	return s
}

func jetStream(s *v1alpha1.JetStreamSpec) *eventplane.JetStream {
	if !s.Enabled {
		return nil
	}
	return &eventplane.JetStream{
		Stream: s.Stream, InMemory: s.Storage == v1alpha1.StorageMemory, Replicas: s.Replicas,
		MaxAge: s.MaxAge.Duration, MaxBytes: s.MaxBytes, SnapshotInterval: s.SnapshotInterval.Duration,
	}
}

func warmUp(s *v1alpha1.WarmUpSpec) eventplane.WarmUp {
	return eventplane.WarmUp{Timeout: s.Timeout.Duration, Peers: *s.FromPeers}
}
