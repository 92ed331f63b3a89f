package scrape

import "time"

// reportEvery is the shortest time between two lines about failures.
const reportEvery = time.Minute

// report is what the log was told. Guarded by Scraper.mu.
type report struct {
	last   time.Time // of the last line
	news   bool      // an endpoint began to fail since
	warned bool      // and no line has said since that all is well
}

// note counts how often an endpoint failed in a row, and tells the log: when one
// keeps failing, at most once a minute for all, and when all are well again.
func (s *Scraper) note(e *endpoint, err error) {
	if err == nil && e.failures.Load() == 0 {
		return
	}
	if err != nil {
		e.failures.Add(1)
	} else {
		e.failures.Store(0)
	}
	failing := s.Failing()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.report
	switch {
	case err != nil:
		// The first failure may be that of a worker that has just begun or ended.
		r.news = r.news || e.failures.Load() == 2
		if !r.news || time.Since(r.last) < reportEvery {
			return
		}
		*r = report{last: time.Now(), warned: true}
		s.cfg.Log.Warn("engine metrics cannot be read; those workers are judged by this picker's own bookings, and the events that there are",
			"endpoint", e.at.String(), "failing", failing, "endpoints", len(s.endpoints), "error", err, "advice", resultOf(err).advice())
	case failing == 0 && r.warned:
		r.warned, r.news = false, false
		s.cfg.Log.Info("the metrics of all engines can be read again")
	}
}
