package scrape

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

const (
	// atOnce is how many endpoints are asked at once; those that failed last get at
	// most a quarter of that, so that a part of a pool that hangs does not keep
	// others waiting.
	atOnce        = 32
	retriesAtOnce = atOnce / 4

	// spread is the time over which endpoints that come together are first asked.
	spread = 500 * time.Millisecond
)

// Sink takes what engines say. It may be called by several goroutines at once, and
// must not change what it gets.
type Sink interface {
	Scraped(fleet.Key, load.Scraped)
}

// Config says which pages are read.
type Config struct {
	Scheme             string // http or https
	Path               string // of the pages; begins with /
	Port               uint16 // of the pages; 0: that of the endpoint
	InsecureSkipVerify bool   // any certificate will do
	MinInterval        time.Duration

	Sink Sink
	// Done hears how each scrape ended, and how long it took. It may be nil.
	Done func(Result, time.Duration)
	Log  *slog.Logger // nil: nothing is logged
}

// Scraper reads the metrics of a pool's engines while it runs. Its methods may be
// called at once.
type Scraper struct {
	cfg       Config
	transport *http.Transport
	slots     chan *fetcher // those that are free
	retries   chan struct{} // likewise, for endpoints that failed
	interval  atomic.Int64  // the shortest now, in nanoseconds
	// But for tests retryPace, timeLimit and dutyInverse.
	retry, limit time.Duration
	duty         int

	pool    atomic.Pointer[fleet.Snapshot]
	changed chan struct{} // pool is another one
	shared  time.Time     // when the log last heard of pages that nobody can use; for Run

	mu        sync.Mutex
	endpoints map[netip.AddrPort]*endpoint // asked now
	report    report
}

// New returns a scraper. It does nothing until [Scraper.Run].
func New(cfg Config) *Scraper {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Done == nil {
		cfg.Done = func(Result, time.Duration) {}
	}
	s := &Scraper{
		cfg:       cfg,
		transport: newTransport(cfg.InsecureSkipVerify),
		slots:     make(chan *fetcher, atOnce),
		retries:   make(chan struct{}, retriesAtOnce),
		changed:   make(chan struct{}, 1),
		endpoints: map[netip.AddrPort]*endpoint{},
		retry:     retryPace, limit: timeLimit, duty: dutyInverse,
	}
	for range atOnce {
		s.slots <- &fetcher{}
	}
	for range retriesAtOnce {
		s.retries <- struct{}{}
	}
	return s
}

// Update says which workers there are from now on. It does not wait.
func (s *Scraper) Update(pool *fleet.Snapshot) {
	s.pool.Store(pool)
	select {
	case s.changed <- struct{}{}:
	default: // it will see this one
	}
}

// Run reads pages until ctx ends, and returns when nothing is under way any more.
func (s *Scraper) Run(ctx context.Context) error {
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer s.transport.CloseIdleConnections()
	defer running.Wait()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
			s.follow(ctx, s.pool.Load(), &running)
		}
	}
}

// follow begins with endpoints that are new in a pool, and ends with those that are
// gone.
func (s *Scraper) follow(ctx context.Context, pool *fleet.Snapshot, running *sync.WaitGroup) {
	pages := s.pagesOf(pool)
	s.interval.Store(int64(max(s.cfg.MinInterval, time.Duration(len(pages))*perEndpoint)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, e := range s.endpoints {
		if _, stays := pages[at]; !stays {
			e.stop()
			delete(s.endpoints, at)
		}
	}
	for at, keys := range pages {
		e := s.endpoints[at]
		if e == nil {
			var of context.Context
			e = &endpoint{scraper: s, at: at, request: newRequest(s.cfg.Scheme, at, s.cfg.Path)}
			of, e.stop = context.WithCancel(ctx)
			s.endpoints[at] = e
			e.serve(keys)
			running.Go(func() { e.run(of) })
		} else {
			e.serve(keys)
		}
	}
}

// pagesOf returns whose figures are on which page. Where two workers with the same
// rank share one, nobody can tell whose they are: neither gets any.
func (s *Scraper) pagesOf(pool *fleet.Snapshot) map[netip.AddrPort][]fleet.Key {
	pages := make(map[netip.AddrPort][]fleet.Key, len(pool.Workers))
	for i := range pool.Workers {
		w := &pool.Workers[i]
		at := netip.AddrPortFrom(w.Endpoint.Addr().Unmap(), w.Endpoint.Port())
		if s.cfg.Port != 0 {
			at = netip.AddrPortFrom(at.Addr(), s.cfg.Port)
		}
		pages[at] = append(pages[at], w.Key)
	}
	for at, keys := range pages {
		ranks := map[uint32]int{}
		for _, k := range keys {
			ranks[k.Rank]++
		}
		if len(ranks) == len(keys) {
			continue
		}
		if time.Since(s.shared) >= reportEvery {
			s.shared = time.Now()
			s.cfg.Log.Warn("workers with the same rank share a metrics page, so their figures are not used; leave spec.engineMetrics.port out if each serves its own", "endpoint", at.String())
		}
		pages[at] = slices.DeleteFunc(keys, func(k fleet.Key) bool { return ranks[k.Rank] > 1 })
		if len(pages[at]) == 0 {
			delete(pages, at)
		}
	}
	return pages
}

// Failing is how many endpoints could not be read the last time.
func (s *Scraper) Failing() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.endpoints {
		if e.failures.Load() > 0 {
			n++
		}
	}
	return n
}

// Figures returns what the engines said last of each worker, but for those that
// could not be read since.
func (s *Scraper) Figures() map[fleet.Key]load.Scraped {
	s.mu.Lock()
	defer s.mu.Unlock()
	figures := make(map[fleet.Key]load.Scraped, len(s.endpoints))
	for _, e := range s.endpoints {
		if e.failures.Load() == 0 {
			e.figures(figures)
		}
	}
	return figures
}

// pace is how often endpoints are scraped now.
func (s *Scraper) pace() pace {
	return pace{least: time.Duration(s.interval.Load()), retry: s.retry, duty: s.duty}
}
