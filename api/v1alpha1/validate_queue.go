package v1alpha1

import (
	"fmt"
	"math"
	"time"
)

const (
	maxQueueWait     = 5 * time.Minute
	maxQueueRequests = 100_000
	maxObjectives    = 256
	maxObjectiveName = 253
	maxFallback      = 4
)

func (q *QueueSpec) check(p *problems, path string) {
	if q.MaxWait != nil {
		checkDuration(p, path+".maxWait", *q.MaxWait, 0, maxQueueWait)
	}
	if q.MaxRequests < 1 || q.MaxRequests > maxQueueRequests {
		p.add(path+".maxRequests", "must be 1 to %d, not %d; to let no request wait set maxWait to 0s", maxQueueRequests, q.MaxRequests)
	}
	checkEnum(p, path+".policy", q.Policy, QueueFCFS, QueueWSPT)
}

func checkObjectives(p *problems, path string, list []ObjectiveSpec) {
	if len(list) > maxObjectives {
		p.add(path, "must have at most %d items, not %d", maxObjectives, len(list))
	}
	seen := map[string]string{}
	for i := range list {
		at := fmt.Sprintf("%s[%d].name", path, i)
		if n := list[i].Priority; n < math.MinInt32 || n > math.MaxInt32 {
			p.add(fmt.Sprintf("%s[%d].priority", path, i), "must be %d to %d, not %d", math.MinInt32, math.MaxInt32, n)
		}
		switch name := list[i].Name; {
		case name == "":
			p.add(at, "required: what requests name in the header x-llm-d-inference-objective")
		case len(name) > maxObjectiveName:
			p.add(at, "must have at most %d characters, not %d", maxObjectiveName, len(name))
		case seen[name] != "":
			p.add(at, "%q is already in %s", name, seen[name])
		default:
			seen[name] = at
		}
	}
}

func checkFallback(p *problems, path string, n int) {
	if n < 0 || n > maxFallback {
		p.add(path, "must be 0 to %d, not %d", maxFallback, n)
	}
}
