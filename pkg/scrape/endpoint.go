package scrape

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// endpoint is one page of metrics, and whose figures are on it.
type endpoint struct {
	scraper *Scraper
	at      netip.AddrPort
	request *http.Request
	stop    context.CancelFunc

	wait     time.Duration // before the scrape that is next
	failures atomic.Int64  // in a row

	mu      sync.Mutex
	workers []*served
}

// served is a worker on a page.
type served struct {
	key               fleet.Key
	last              load.Scraped // without a time before the first
	adapters, waiting names
}

// serve says whose figures are on the page.
func (e *endpoint) serve(keys []fleet.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.workers
	e.workers = nil
	for _, k := range keys {
		i := slices.IndexFunc(old, func(w *served) bool { return w.key == k })
		if i >= 0 {
			e.workers = append(e.workers, old[i])
		} else {
			e.workers = append(e.workers, &served{key: k})
		}
	}
}

// figures adds what is known of the workers.
func (e *endpoint) figures(to map[fleet.Key]load.Scraped) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.workers {
		if !w.last.At.IsZero() {
			to[w.key] = w.last
		}
	}
}

// run scrapes the page until ctx ends.
func (e *endpoint) run(ctx context.Context) {
	timer := time.NewTimer(time.Duration(rand.Float64() * float64(spread)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if !e.turn(ctx) {
			return
		}
		timer.Reset(jittered(e.wait, rand.Float64()))
	}
}

// turn scrapes the page once when there is room. It returns false when ctx has ended.
func (e *endpoint) turn(ctx context.Context) bool {
	s := e.scraper
	if e.failures.Load() > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-s.retries:
			defer func() { s.retries <- struct{}{} }()
		}
	}
	select {
	case <-ctx.Done():
		return false
	case f := <-s.slots:
		defer func() { s.slots <- f }()
		return e.scrape(ctx, f)
	}
}

// scrape scrapes the page, and decides when to do so again.
func (e *endpoint) scrape(ctx context.Context, f *fetcher) bool {
	s := e.scraper
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	err := f.fetch(limited, s.transport, e.request)
	if ctx.Err() != nil {
		return false
	}
	o := outcome{took: time.Since(start)}
	if err == nil {
		var known bool
		if known, o.moved = e.tell(&f.page, start); !known {
			o.empty, err = true, errNoFigures
		}
	} else {
		o.failed = true
	}
	e.wait = s.pace().next(e.wait, o)
	s.cfg.Done(resultOf(err), o.took)
	s.note(e, err)
	return true
}

// tell hands on what a page says. It says whether there was anything, and whether it
// is to be expected that it will soon be out of date.
func (e *endpoint) tell(p *page, at time.Time) (known, moved bool) {
	e.mu.Lock()
	workers := e.workers
	e.mu.Unlock()
	for _, w := range workers {
		now, lists, ok := p.of(w.key.Rank, len(workers) == 1, at)
		if !ok {
			continue
		}
		if lists != nil {
			now.Adapters, now.WaitingAdapters = w.adapters.of(lists.running), w.waiting.of(lists.waiting)
		}
		known = true
		moved = moved || moves(&w.last, &now)
		e.mu.Lock()
		w.last = now
		e.mu.Unlock()
		e.scraper.cfg.Sink.Scraped(w.key, now)
	}
	return known, moved
}

// moves says whether figures changed while requests wait or run. Where an engine
// does not say how many do, any change counts.
func moves(old, now *load.Scraped) bool {
	changed := old.Waiting != now.Waiting || old.Running != now.Running || old.KVUse != now.KVUse ||
		!slices.Equal(old.Adapters, now.Adapters) || !slices.Equal(old.WaitingAdapters, now.WaitingAdapters)
	idle := now.Waiting == 0 && now.Running <= 0 || now.Waiting <= 0 && now.Running == 0
	wasIdle := old.At.IsZero() || old.Waiting == 0 && old.Running <= 0 || old.Waiting <= 0 && old.Running == 0
	return changed && (!idle || !wasIdle)
}
