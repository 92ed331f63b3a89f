package scrape

import "time"

// How often an endpoint is scraped.
const (
	idlePace  = 2 * time.Second  // when no figure changes
	emptyPace = 10 * time.Second // when the page has no figures yet
	retryPace = 10 * time.Second // after a failure; twice as long after each one more
	slowest   = time.Minute      // at most, jitter aside

	// dutyInverse bounds the share of the time in which an endpoint answers us to 2 %:
	// engines slow down where their metrics are read all the time
	// (endpoint-picker.md 8, row 8).
	dutyInverse = 50

	// perEndpoint bounds all scrapes to 1,000 a second.
	perEndpoint = time.Millisecond
)

// outcome is what a scrape came to.
type outcome struct {
	took   time.Duration
	failed bool // no page
	empty  bool // a page without figures
	moved  bool // a figure is another than before, and requests wait or run
}

// pace is how often endpoints are scraped.
type pace struct {
	least time.Duration // the shortest wait of all

	// But for tests.
	retry time.Duration // retryPace
	duty  int           // dutyInverse
}

// next returns how long to wait after a scrape, when the wait before it was last, 0
// before the first. An endpoint is scraped fast only while its figures move.
func (p pace) next(last time.Duration, o outcome) time.Duration {
	if o.failed {
		return max(p.least, min(slowest, max(p.retry, 2*last)))
	}
	wait := p.least
	switch {
	case o.empty:
		wait = max(p.least, emptyPace)
	case !o.moved:
		wait = max(p.least, min(2*last, idlePace))
	}
	return max(wait, min(slowest, time.Duration(p.duty)*o.took))
}

// jittered makes a wait longer by up to a fifth, u from 0 to 1, so that endpoints do
// not keep in step.
func jittered(wait time.Duration, u float64) time.Duration {
	return wait + time.Duration(u*float64(wait)/5)
}
