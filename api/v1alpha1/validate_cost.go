package v1alpha1

import (
	"strconv"
	"strings"
	"time"
)

// maxBound is far above the load of any worker.
const maxBound = 1_000_000_000

const (
	maxClasses    = 16
	maxClassName  = 63
	maxHeaderName = 128
)

// knobs returns the names of the fields that only Dynamo's model has, of those that
// are set.
func (c *CostSpec) knobs() (set []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"overlapScoreCredit", c.OverlapScoreCredit != nil},
		{"overlapScoreCreditDecay", c.OverlapScoreCreditDecay != nil},
		{"hostCacheHitWeight", c.HostCacheHitWeight != nil},
		{"diskCacheHitWeight", c.DiskCacheHitWeight != nil},
		{"sharedCacheType", c.SharedCacheType != ""},
		{"sharedCacheMultiplier", c.SharedCacheMultiplier != nil},
		{"prefillLoadScale", c.PrefillLoadScale != nil},
		{"decodeActiveRequestWeight", c.DecodeActiveRequestWeight != nil},
		{"temperature", c.Temperature != nil},
		{"assumeKVReuse", c.AssumeKVReuse != nil},
		{"trackPrefillTokens", c.TrackPrefillTokens != nil},
		{"trackActiveBlocks", c.TrackActiveBlocks != nil},
		{"trackOutputBlocks", c.TrackOutputBlocks != nil},
		{"classes", len(c.Classes) > 0},
	} {
		if k.set {
			set = append(set, k.name)
		}
	}
	return set
}

// LoadOnly says that what workers hold never counts, so that nobody need say it: the
// model of Dynamo with a credit of 0 for all classes of requests.
func (c *CostSpec) LoadOnly() bool {
	if c.Model != ModelDynamo || c.OverlapScoreCredit == nil || *c.OverlapScoreCredit != 0 {
		return false
	}
	for i := range c.Classes {
		if credit := c.Classes[i].OverlapScoreCredit; credit != nil && *credit > 0 {
			return false
		}
	}
	return true
}

// Approximate says that what workers hold is taken from own decisions, not from
// events.
func (c *CostSpec) Approximate() bool { return c.UseKVEvents != nil && !*c.UseKVEvents }

func (c *CostSpec) check(p *problems, path string) {
	checkEnum(p, path+".model", c.Model, ModelCongestion, ModelDynamo)
	if set := c.knobs(); c.Model == ModelCongestion && len(set) > 0 {
		p.add(path+".model", "Congestion has no knobs; remove %s, or set model to Dynamo", strings.Join(set, ", "))
	}
	checkNumber(p, path+".overlapScoreCredit", c.OverlapScoreCredit, 1)
	checkNumber(p, path+".overlapScoreCreditDecay", c.OverlapScoreCreditDecay, 1000)
	checkNumber(p, path+".hostCacheHitWeight", c.HostCacheHitWeight, 1)
	checkNumber(p, path+".diskCacheHitWeight", c.DiskCacheHitWeight, 1)
	if c.SharedCacheType != "" {
		checkEnum(p, path+".sharedCacheType", c.SharedCacheType, SharedCacheNone, SharedCacheExternal)
	}
	checkNumber(p, path+".sharedCacheMultiplier", c.SharedCacheMultiplier, 1)
	checkNumber(p, path+".prefillLoadScale", c.PrefillLoadScale, 1000)
	checkNumber(p, path+".decodeActiveRequestWeight", c.DecodeActiveRequestWeight, 1_000_000)
	checkNumber(p, path+".temperature", c.Temperature, 100)
	if c.RouterTTL != nil {
		checkDuration(p, path+".routerTTL", *c.RouterTTL, 0, 24*time.Hour)
	}
	checkHeader(p, path+".classHeader", c.ClassHeader)
	c.checkClasses(p, path+".classes")
}

func (c *CostSpec) checkClasses(p *problems, path string) {
	if n := len(c.Classes); n > maxClasses {
		p.add(path, "must be at most %d classes, not %d", maxClasses, n)
	}
	seen := map[string]string{}
	for i := range c.Classes {
		class, at := &c.Classes[i], path+"["+strconv.Itoa(i)+"]"
		switch {
		case class.Name == "":
			p.add(at+".name", "required")
		case len(class.Name) > maxClassName:
			p.add(at+".name", "must be at most %d characters", maxClassName)
		case seen[class.Name] != "":
			p.add(at+".name", "%q is already in %s", class.Name, seen[class.Name])
		}
		seen[class.Name] = at
		if class.OverlapScoreCredit == nil && class.PrefillLoadScale == nil && class.Temperature == nil {
			p.add(at, "must set overlapScoreCredit, prefillLoadScale or temperature; without any it is as no class")
		}
		checkNumber(p, at+".overlapScoreCredit", class.OverlapScoreCredit, 1)
		checkNumber(p, at+".prefillLoadScale", class.PrefillLoadScale, 1000)
		checkNumber(p, at+".temperature", class.Temperature, 100)
	}
}

// checkHeader checks the name of a header that clients send, empty for none.
func checkHeader(p *problems, path, name string) {
	switch {
	case name == "":
	case !isHeaderName(name) || len(name) > maxHeaderName:
		p.add(path, "%.128q is not a header name; use lower-case letters, digits and -, at most %d", name, maxHeaderName)
	case isReserved(name):
		p.add(path, "%s is used for something else; choose another header", name)
	}
}

func (s *SessionAffinitySpec) check(p *problems, path string) {
	checkHeader(p, path+".header", s.Header)
}

// checkNumber checks a number from 0 to most; nil is left out.
func checkNumber(p *problems, path string, got *float64, most float64) {
	if got != nil && !(*got >= 0 && *got <= most) { // NaN is refused, too
		p.add(path, "must be 0 to %s, not %s", number(most), number(*got))
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// checkCount checks a whole number from 0 to most; nil is left out.
func checkCount(p *problems, path string, got *int64, most int64) {
	if got != nil && (*got < 0 || *got > most) {
		p.add(path, "must be 0 to %d, not %d", most, *got)
	}
}

func (a *AdmissionSpec) check(p *problems, path string) {
	checkCount(p, path+".activePrefillTokensThreshold", a.ActivePrefillTokensThreshold, maxBound)
	checkNumber(p, path+".activePrefillTokensThresholdFraction", a.ActivePrefillTokensThresholdFraction, 1_000_000)
	checkCount(p, path+".activeDecodeBlocksThreshold", a.ActiveDecodeBlocksThreshold, maxBound)
	checkNumber(p, path+".activeDecodeBlocksThresholdFraction", a.ActiveDecodeBlocksThresholdFraction, 1)
	a.Queue.check(p, path+".queue")
	checkObjectives(p, path+".objectives", a.Objectives)
	checkFallback(p, path+".fallbackEndpoints", a.FallbackEndpoints)
}
