package kube

import (
	"fmt"
	"slices"
	"strings"
)

// notReady says, of a pool without a single ready engine, what its pods lack.
func notReady(t target, pods int, processes []process) []Problem {
	why := map[string][]string{}
	for i := range processes {
		one := &processes[i]
		if one.absent == "" {
			return nil
		}
		if list := why[one.absent]; !slices.Contains(list, one.pod.Name) {
			why[one.absent] = append(list, one.pod.Name)
		}
	}
	if len(processes) == 0 {
		return []Problem{{reasonNoReadyPods, fmt.Sprintf(
			"none of the %d pods of the namespace is a worker: the selector %q of %s matches none, or none of them declares a target port; "+
				"start workers with these labels, or correct the selector", pods, t.selector.String(), t.where)}}
	}
	var parts []string
	for _, state := range []string{absentNotReady, absentNoIP, absentTerminating, absentNoPort} {
		if list := why[state]; len(list) > 0 {
			slices.Sort(list)
			parts = append(parts, fmt.Sprintf("%d %s (%s)", len(list), state, names(list)))
		}
	}
	return []Problem{{reasonNoReadyPods, fmt.Sprintf(
		"no pod of %s takes requests: of %d that match, %s; see kubectl describe pod for the reason", t.where, countPods(processes), strings.Join(parts, ", "))}}
}

func countPods(processes []process) int {
	pods := map[string]bool{}
	for i := range processes {
		pods[processes[i].pod.Name] = true
	}
	return len(pods)
}
