package kube

import (
	"fmt"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// compare finds what workers say of themselves that does not fit the spec in use,
// or the role that they have.
func compare(processes []process, spec *v1alpha1.RoutingPolicySpec, r rules) []Problem {
	var (
		sizes groups[int]
		parts groups[[2]string]
		ids   groups[bool]
		zmq   groups[bool]
		odd   groups[string]
	)
	for i := range processes {
		p := &processes[i]
		if p.said == nil {
			continue
		}
		if size := p.said.BlockSize; size != 0 && size != spec.BlockSize {
			sizes.add(size, p.name)
		}
		if p.hasRole {
			if says, other := otherRole(p.said, p.ranks[0].Role, r.roles); other {
				parts.add([2]string{says, p.ranks[0].Role.String()}, p.name)
			}
		}
		if len(p.said.ids) > 0 && !slices.Contains(p.said.ids, p.ranks[0].ID) {
			ids.add(true, p.name)
		}
		if p.said.zmq && !spec.EventPlane.Disabled {
			zmq.add(true, p.name)
		}
		if len(p.said.faults) > 0 {
			odd.add(p.said.faults[0], p.name)
		}
	}
	var all []Problem
	add := func(reason, format string, args ...any) {
		all = append(all, Problem{reason, fmt.Sprintf(format, args...)})
	}
	sizes.each(func(size int, workers string) {
		add(reasonBlockSize, "blockSize is %d, but these workers say that theirs is %d, so that no prefix of theirs ever matches: %s; "+
			"set spec.blockSize to %d, or start the workers with %d", spec.BlockSize, size, workers, size, spec.BlockSize)
	})
	parts.each(func(key [2]string, workers string) {
		add(reasonRole, "these workers have the role %s by their labels, but say that they are %s: %s; correct the labels, or spec.roles", key[1], key[0], workers)
	})
	ids.each(func(_ bool, workers string) {
		add(reasonWorkerID, "these workers publish events under another id than the one of their name, so that no event of theirs counts: %s; "+
			"set discovery.kubernetes.workerIdentity to what DYN_KUBE_DISCOVERY_MODE of the workers is", workers)
	})
	zmq.each(func(_ bool, workers string) {
		add(reasonZMQ, "these workers publish their KV events over ZMQ, which this picker does not hear: %s; "+
			"set DYN_EVENT_PLANE=nats and NATS_SERVER on them", workers)
	})
	odd.each(func(fault, workers string) {
		add(reasonBadMetadata, "part of a DynamoWorkerMetadata cannot be read and is left out (%s), of: %s; "+
			"is this a version of Dynamo newer than the picker knows?", fault, workers)
	})
	return all
}

// otherRole says whether a worker takes itself for something else than its labels
// do. Before Dynamo 1.3 only the component tells: prefill workers have one of their
// own, all others may be called anything.
func otherRole(s *said, role fleet.Role, rules fleet.RoleRules) (says string, other bool) {
	if s.Type != "" {
		return s.Type, !strings.EqualFold(s.Type, role.String())
	}
	if s.Component == "" {
		return "", false
	}
	prefill := slices.Contains(rules.Prefill, s.Component)
	return "of component " + s.Component, prefill != (role == fleet.Prefill)
}
