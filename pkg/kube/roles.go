package kube

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// componentVariable is the environment variable in which Dynamo's operator tells a
// worker its component. It counts as the label of that name where there is none.
const componentVariable = "DYN_COMPONENT"

// word is a label and its value, or two of them that disagree.
type word struct{ label, value, label2, value2 string }

// roleOf returns the role of an engine. ok is false when its labels hold nothing
// but words that no role has; odd is then such a word. With ok, odd is set when
// another label says the opposite of the one that decided.
func roleOf(rules fleet.RoleRules, labels map[string]string) (role fleet.Role, ok bool, odd word) {
	role, known := rules.Role(labels)
	if !known {
		for _, label := range rules.Labels {
			if value, present := labels[label]; present {
				return role, false, word{label: label, value: value}
			}
		}
		return fleet.Aggregated, true, odd
	}
	for _, label := range rules.Labels {
		value := labels[label]
		if !slices.Contains(rules.Prefill, value) && !slices.Contains(rules.Decode, value) {
			continue
		}
		if odd.label == "" {
			odd.label, odd.value = label, value
		} else if slices.Contains(rules.Prefill, value) != (role == fleet.Prefill) {
			odd.label2, odd.value2 = label, value
			return role, true, odd
		}
	}
	return role, true, word{}
}

// roleLabels are the labels of a pod, and what its environment says where a label
// is missing. The variable is the one of the container, or of the first container
// of the pod that has it.
func roleLabels(rules fleet.RoleRules, pod *corev1.Pod, container string) map[string]string {
	if _, labelled := pod.Labels[componentVariable]; labelled || !slices.Contains(rules.Labels, componentVariable) {
		return pod.Labels
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if container != "" && c.Name != container {
			continue
		}
		for _, v := range c.Env {
			if v.Name == componentVariable && v.Value != "" {
				labels := maps.Clone(pod.Labels)
				if labels == nil {
					labels = map[string]string{}
				}
				labels[componentVariable] = v.Value
				return labels
			}
		}
	}
	return pod.Labels
}

// roleFindings collects what is wrong with the roles of a pool.
type roleFindings struct{ unknown, conflicting groups[word] }

func (f *roleFindings) problems() []Problem {
	var all []Problem
	f.unknown.each(func(w word, pods string) {
		all = append(all, Problem{reasonUnknownRole, fmt.Sprintf(
			"%s has %q, which is the word of no role, on these pods, which get no requests: %s; "+
				"add the word to spec.roles, or correct the label, or leave the pods out of the pool's selector", w.label, w.value, pods)})
	})
	f.conflicting.each(func(w word, pods string) {
		all = append(all, Problem{reasonConflictingRoles, fmt.Sprintf(
			"%s has %q, but %s has %q, on these pods: %s; the first of the two counts; correct the other label",
			w.label, w.value, w.label2, w.value2, pods)})
	})
	return all
}

// missingHalf says when a pool that splits prefill and decode has only one of the
// two.
func missingHalf(workers []fleet.Worker) []Problem {
	var count [3]int
	for i := range workers {
		count[workers[i].Role]++
	}
	prefill, decode, aggregated := count[fleet.Prefill], count[fleet.Decode], count[fleet.Aggregated]
	switch {
	case aggregated > 0:
		return nil // they do either half
	case prefill > 0 && decode == 0:
		return []Problem{{reasonNoDecode, fmt.Sprintf(
			"%d prefill workers are ready, but no worker that decodes, so that every request is refused; "+
				"start decode workers, or check their labels (spec.roles) and the pool's selector", prefill)}}
	case decode > 0 && prefill == 0:
		return []Problem{{reasonNoPrefill, fmt.Sprintf(
			"%d decode workers are ready, but no prefill worker, so that decode workers compute the prompts themselves; "+
				"start prefill workers, or check their labels (spec.roles) and the pool's selector; "+
				"if the workers are meant to do both, list their word in spec.roles.aggregated instead of spec.roles.decode", decode)}}
	}
	return nil
}
