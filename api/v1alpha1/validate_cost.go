package v1alpha1

import "strconv"

// maxBound is far above the load of any worker.
const maxBound = 1_000_000_000

func (c *CostSpec) check(p *problems, path string) {
	checkNumber(p, path+".overlapScoreCredit", c.OverlapScoreCredit, 1)
	checkNumber(p, path+".hostCacheHitWeight", c.HostCacheHitWeight, 1)
	checkNumber(p, path+".diskCacheHitWeight", c.DiskCacheHitWeight, 1)
	checkNumber(p, path+".prefillLoadScale", c.PrefillLoadScale, 1000)
	checkNumber(p, path+".temperature", c.Temperature, 100)
}

// checkNumber checks a number from 0 to most, which Default has filled in.
func checkNumber(p *problems, path string, got *float64, most float64) {
	if got != nil && !(*got >= 0 && *got <= most) { // NaN is refused, too
		p.add(path, "must be 0 to %s, not %s", number(most), number(*got))
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (a *AdmissionSpec) check(p *problems, path string) {
	for _, f := range []struct {
		name  string
		bound int64
	}{
		{".activePrefillTokensThreshold", a.ActivePrefillTokensThreshold},
		{".activeDecodeBlocksThreshold", a.ActiveDecodeBlocksThreshold},
	} {
		if f.bound < 0 || f.bound > maxBound {
			p.add(path+f.name, "must be 0 to %d, not %d", maxBound, f.bound)
		}
	}
	a.Queue.check(p, path+".queue")
	checkObjectives(p, path+".objectives", a.Objectives)
	checkFallback(p, path+".fallbackEndpoints", a.FallbackEndpoints)
}
