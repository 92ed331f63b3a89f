package v1alpha1

import "fmt"

const maxWeight = 1_000_000

func (r *ModelRewriteRule) check(p *problems, path string) {
	distinct(p, map[string]string{}, path+".matches", r.Matches)
	if len(r.Targets) == 0 {
		p.add(path+".targets", "must name at least one model to send requests to")
	}
	for i, t := range r.Targets {
		at := fmt.Sprintf("%s.targets[%d]", path, i)
		if t.ModelRewrite == "" {
			p.add(at+".modelRewrite", "must name the model to send requests to")
		}
		if w := t.Weight; w != nil && (*w < 1 || *w > maxWeight) {
			p.add(at+".weight", "must be 1 to %d, not %d; leave the target out to send it nothing", maxWeight, *w)
		}
	}
}
