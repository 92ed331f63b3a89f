package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// target is what the workers of a pool have in common.
type target struct {
	selector labels.Selector // of the pods
	ports    []uint16        // in the order of the data-parallel ranks
	where    string          // what people would look at: where the selector is
}

// poolTarget reads it from an InferencePool. The API server checks pools, but ours
// may be newer or older than its rules.
func poolTarget(pool *inferencev1.InferencePool) (target, []Problem) {
	where := fmt.Sprintf("InferencePool %s/%s", pool.Namespace, pool.Name)
	t := target{selector: labels.Nothing(), where: where}
	set := labels.Set{}
	for key, value := range pool.Spec.Selector.MatchLabels {
		set[string(key)] = string(value)
	}
	var problems []Problem
	if selector, err := set.AsValidatedSelector(); err != nil {
		problems = append(problems, Problem{reasonPoolInvalid, fmt.Sprintf("spec.selector of %s: %v; correct it", where, err)})
	} else if len(set) == 0 {
		problems = append(problems, Problem{reasonPoolInvalid, "spec.selector of " + where + " is empty, which selects no pod; give it the labels of the workers' pods"})
	} else {
		t.selector = selector
	}
	for _, p := range pool.Spec.TargetPorts {
		if p.Number < 1 || p.Number > 65535 {
			problems = append(problems, Problem{reasonPoolInvalid, fmt.Sprintf("spec.targetPorts of %s: %d is no port; use 1 to 65535", where, p.Number)})
			continue
		}
		t.ports = append(t.ports, uint16(p.Number))
	}
	if len(pool.Spec.TargetPorts) == 0 {
		problems = append(problems, Problem{reasonPoolInvalid, "spec.targetPorts of " + where + " is empty; list the port that the workers serve"})
	}
	return t, problems
}

// selectorTarget reads it from the configuration file.
func selectorTarget(s *v1alpha1.PodSelector, namespace string) (target, error) {
	selector, err := labels.Parse(s.LabelSelector)
	if err != nil {
		return target{}, fmt.Errorf("discovery.kubernetes.selector.labelSelector: %w", err)
	}
	t := target{selector: selector, where: "discovery.kubernetes.selector in namespace " + namespace}
	for _, port := range s.TargetPorts {
		t.ports = append(t.ports, uint16(port))
	}
	return t, nil
}
