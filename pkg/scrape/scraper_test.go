package scrape

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// sink keeps what it is told.
type sink struct {
	mu   sync.Mutex
	last map[fleet.Key]load.Scraped
	n    map[fleet.Key]int
}

func newSink() *sink { return &sink{last: map[fleet.Key]load.Scraped{}, n: map[fleet.Key]int{}} }

func (s *sink) Scraped(k fleet.Key, got load.Scraped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[k] = got
	s.n[k]++
}

func (s *sink) get(k fleet.Key) (got load.Scraped, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[k], s.n[k]
}

// rig is a scraper that runs, and counts how its scrapes end.
type rig struct {
	*Scraper
	sink    *sink
	results [NumResults]atomic.Int64
	stop    func()
}

// start runs a scraper until the test ends. It has patience with pages that take long,
// and comes back soon all the same: how fast the machine is does not matter.
func start(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	return startWith(t, func(*Scraper) {}, change)
}

// startWith is start with other waits.
func startWith(t *testing.T, tune func(*Scraper), change func(*Config)) *rig {
	t.Helper()
	r := &rig{sink: newSink()}
	cfg := Config{
		Scheme: "http", Path: "/metrics", MinInterval: time.Millisecond, Sink: r.sink,
		Done: func(x Result, _ time.Duration) { r.results[x].Add(1) },
	}
	if change != nil {
		change(&cfg)
	}
	r.Scraper = New(cfg)
	r.duty, r.limit = 0, patience
	tune(r.Scraper)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func retryAtOnce(s *Scraper) { s.retry = time.Millisecond }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// pool is one of workers with consecutive ids, one at each address.
func pool(t *testing.T, addresses ...netip.AddrPort) *fleet.Snapshot {
	t.Helper()
	var workers []fleet.Worker
	for i, at := range addresses {
		workers = append(workers, fleet.Worker{Key: fleet.Key{ID: uint64(i + 1)}, Name: fmt.Sprint("worker-", i), Endpoint: at})
	}
	return snapshot(t, workers...)
}

func snapshot(t *testing.T, workers ...fleet.Worker) *fleet.Snapshot {
	t.Helper()
	s, err := fleet.NewSnapshot(workers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func addrOf(s *httptest.Server) netip.AddrPort {
	return s.Listener.Addr().(*net.TCPAddr).AddrPort()
}

// serve serves pages until the test ends.
func serve(t testing.TB, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return addrOf(s)
}

// hang says nothing until the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func pageOf(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

// TestScrape: figures of a worker reach the sink again and again, over one
// connection, and change when the engine's do.
func TestScrape(t *testing.T) {
	var waiting, connections atomic.Int64
	var asked atomic.Pointer[http.Request]
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		fmt.Fprintf(w, "vllm:num_requests_waiting{engine=\"0\"} %d\n", waiting.Add(1))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	r := start(t, nil)
	r.Update(pool(t, addrOf(s)))
	before := time.Now()
	eventually(t, "five scrapes", func() bool { _, n := r.sink.get(fleet.Key{ID: 1}); return n >= 5 })
	r.stop()
	got, n := r.sink.get(fleet.Key{ID: 1})
	if got.Waiting != n || got.Running != -1 || got.KVUse != -1 || got.Adapters != nil {
		t.Errorf("after %d scrapes: %+v", n, got)
	}
	if got.At.Before(before.Add(-time.Minute)) || got.At.After(time.Now()) {
		t.Errorf("told at %v", got.At)
	}
	if connections.Load() != 1 {
		t.Errorf("%d connections", connections.Load())
	}
	req := asked.Load()
	if req.URL.Path != "/metrics" || req.Method != http.MethodGet || req.Header.Get("Accept-Encoding") != "identity" || req.Host != addrOf(s).String() {
		t.Errorf("asked for %s %s of %s with %v", req.Method, req.URL, req.Host, req.Header)
	}
	if r.results[OK].Load() != int64(n) || r.Failing() != 0 {
		t.Errorf("%d ok of %d, %d failing", r.results[OK].Load(), n, r.Failing())
	}
}

// TestBadEndpoints: each way in which a page cannot be read has its own name, says
// nothing to the sink, and keeps nobody else waiting.
func TestBadEndpoints(t *testing.T) {
	closed := serveClosed(t)
	zip := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.String()
	}
	encoded := func(encoding, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			_, _ = w.Write([]byte(text))
		}
	}
	good := pageOf(vllmPage)
	for _, tc := range []struct {
		name string
		page http.HandlerFunc
		want Result
	}{
		{"garbage", pageOf(strings.Repeat("\xff\x00{}= \n", 1000)), NoFigures},
		{"a web page", pageOf("<html><body>vllm:num_requests_waiting 5</body></html>"), NoFigures},
		{"nothing", pageOf(""), NoFigures},
		{"10 MB", pageOf(vllmPage + strings.Repeat("# nothing to see here, but a lot of it\n", 10<<20/40)), TooLarge},
		{"10 MB, zipped", encoded("gzip", zip(vllmPage+strings.Repeat("\n", 10<<20))), TooLarge},
		{"zipped", encoded("gzip", zip(vllmPage)), OK},
		{"said to be zipped", encoded("gzip", vllmPage), Unreadable},
		{"zipped in another way", encoded("zstd", vllmPage), Unreadable},
		{"not found", http.NotFound, BadStatus},
		{"a redirect", http.RedirectHandler("/elsewhere", http.StatusFound).ServeHTTP, BadStatus},
		{"an error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, BadStatus},
		{"no answer", hang, TimedOut},
		{"half an answer", func(w http.ResponseWriter, r *http.Request) {
			good(w, nil)
			w.(http.Flusher).Flush()
			hang(w, r)
		}, TimedOut},
		{"an answer cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			good(w, nil)
		}, Unreachable},
		{"nobody", nil, Unreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			at := closed
			if tc.page != nil {
				at = serve(t, tc.page)
			}
			other := serve(t, good)
			r := startWith(t, func(s *Scraper) {
				if tc.want == TimedOut {
					s.limit = timeLimit
				}
			}, nil)
			r.Update(pool(t, at, other))
			eventually(t, "both are scraped", func() bool {
				_, n := r.sink.get(fleet.Key{ID: 2})
				return n > 0 && (tc.want == OK || r.results[tc.want].Load() > 0)
			})
			if tc.want == OK {
				eventually(t, "figures", func() bool { _, n := r.sink.get(fleet.Key{ID: 1}); return n > 0 })
				return
			}
			eventually(t, "it counts as failing", func() bool { return r.Failing() == 1 })
			if got, n := r.sink.get(fleet.Key{ID: 1}); n != 0 {
				t.Errorf("the sink was told %+v", got)
			}
			eventually(t, "figures of the other one alone", func() bool {
				figures := r.Figures()
				_, shown := figures[fleet.Key{ID: 2}]
				return shown && len(figures) == 1
			})
		})
	}
}

// serveClosed is an address on which nobody listens.
func serveClosed(t *testing.T) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return addrOf(s)
}

// TestRestart: an engine that is away for a while keeps its figures, and tells new
// ones when it is back at the same address.
func TestRestart(t *testing.T) {
	s := httptest.NewServer(pageOf("sglang:num_queue_reqs 4\n"))
	at := addrOf(s)
	r := startWith(t, retryAtOnce, nil)
	r.Update(pool(t, at))
	k := fleet.Key{ID: 1}
	eventually(t, "figures", func() bool { _, n := r.sink.get(k); return n > 0 })
	s.CloseClientConnections()
	s.Close()
	eventually(t, "it fails", func() bool { return r.Failing() == 1 })
	if got, _ := r.sink.get(k); got.Waiting != 4 {
		t.Errorf("the figures became %+v", got)
	}
	var l net.Listener
	eventually(t, "the port is free", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", at.String())
		return err == nil
	})
	again := httptest.NewUnstartedServer(pageOf("sglang:num_queue_reqs 0\n"))
	again.Listener.Close()
	again.Listener = l
	again.Start()
	defer again.Close()
	eventually(t, "new figures", func() bool { got, _ := r.sink.get(k); return got.Waiting == 0 && r.Failing() == 0 })
}

// TestPoolChanges: workers that come are scraped, and those that go are not any more.
func TestPoolChanges(t *testing.T) {
	one, two := &countedPage{}, &countedPage{}
	first, second := serve(t, one.ServeHTTP), serve(t, two.ServeHTTP)
	r := start(t, nil)
	r.Update(pool(t, first))
	eventually(t, "the first is scraped", func() bool { return one.n.Load() > 0 })
	if two.n.Load() != 0 {
		t.Error("the second is scraped before it is in the pool")
	}
	a, b := fleet.Worker{Key: fleet.Key{ID: 1}, Endpoint: first}, fleet.Worker{Key: fleet.Key{ID: 7}, Endpoint: second}
	r.Update(snapshot(t, a, b))
	eventually(t, "the second is scraped", func() bool { _, n := r.sink.get(b.Key); return n > 0 })
	a.ID = 9 // another process at the same place
	r.Update(snapshot(t, a))
	eventually(t, "the first has another name", func() bool { _, n := r.sink.get(a.Key); return n > 0 })
	_, old := r.sink.get(fleet.Key{ID: 1})
	_, gone := r.sink.get(b.Key)
	_, n := r.sink.get(a.Key)
	eventually(t, "more scrapes", func() bool { _, now := r.sink.get(a.Key); return now > n+3 })
	if _, now := r.sink.get(b.Key); now > gone+1 { // one may have been under way
		t.Errorf("a worker that has left was scraped %d times more", now-gone)
	}
	if _, now := r.sink.get(fleet.Key{ID: 1}); now > old {
		t.Error("the sink was told of a name that is no more")
	}
}

// countedPage is a page whose figures move.
type countedPage struct{ n atomic.Int64 }

func (p *countedPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "vllm:num_requests_running{engine=\"0\"} %d\n", p.n.Add(1))
}

// TestRanksOfOneEndpoint: the ranks of an endpoint each get their own figures from
// one scrape.
func TestRanksOfOneEndpoint(t *testing.T) {
	at := serve(t, pageOf("vllm:num_requests_waiting{engine=\"0\"} 5\nvllm:num_requests_waiting{engine=\"1\"} 6\n"))
	r := start(t, nil)
	r.Update(snapshot(t,
		fleet.Worker{Key: fleet.Key{ID: 3, Rank: 0}, Endpoint: at},
		fleet.Worker{Key: fleet.Key{ID: 3, Rank: 1}, Endpoint: at}))
	for rank, want := range []int{5, 6} {
		eventually(t, fmt.Sprint("rank ", rank), func() bool {
			got, n := r.sink.get(fleet.Key{ID: 3, Rank: uint32(rank)})
			return n > 0 && got.Waiting == want
		})
	}
}

// TestSharedPage: of two workers of the same rank that share a page, nobody can tell
// whose figures it has.
func TestSharedPage(t *testing.T) {
	var log logBuffer
	at := netip.MustParseAddrPort("10.0.0.1:8000")
	s := New(Config{Port: 9090, Log: slog.New(slog.NewTextHandler(&log, nil))})
	pages := s.pagesOf(snapshot(t,
		fleet.Worker{Key: fleet.Key{ID: 1}, Endpoint: at},
		fleet.Worker{Key: fleet.Key{ID: 2}, Endpoint: netip.AddrPortFrom(at.Addr(), 8001)},
		fleet.Worker{Key: fleet.Key{ID: 2, Rank: 1}, Endpoint: netip.AddrPortFrom(at.Addr(), 8002)},
		fleet.Worker{Key: fleet.Key{ID: 3}, Endpoint: netip.MustParseAddrPort("[::ffff:10.0.0.2]:8000")}))
	if len(pages) != 2 || len(pages[netip.MustParseAddrPort("10.0.0.1:9090")]) != 1 || len(pages[netip.MustParseAddrPort("10.0.0.2:9090")]) != 1 {
		t.Errorf("pages: %v", pages)
	}
	if got := pages[netip.MustParseAddrPort("10.0.0.1:9090")]; len(got) == 1 && got[0] != (fleet.Key{ID: 2, Rank: 1}) {
		t.Errorf("the page is that of %v", got)
	}
	if log.count("share a metrics page") != 1 {
		t.Errorf("log: %s", &log)
	}
}

// TestIPv6AndPort: addresses of IPv6, and another port than the endpoint's, are written as they must be.
func TestIPv6AndPort(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(pageOf(trtllmPage))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	r := start(t, func(c *Config) { c.Port = addrOf(s).Port() })
	r.Update(pool(t, netip.AddrPortFrom(addrOf(s).Addr(), 1)))
	eventually(t, "figures", func() bool { got, _ := r.sink.get(fleet.Key{ID: 1}); return got.Waiting == 2 })
}

// TestTLS: a certificate that nobody knows is refused, unless the policy says so.
func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(pageOf(vllmPage))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	strict := start(t, func(c *Config) { c.Scheme = "https" })
	lax := start(t, func(c *Config) { c.Scheme, c.InsecureSkipVerify = "https", true })
	for _, r := range []*rig{strict, lax} {
		r.Update(pool(t, addrOf(s)))
	}
	eventually(t, "figures", func() bool { got, _ := lax.sink.get(fleet.Key{ID: 1}); return got.Waiting == 3 })
	eventually(t, "refusal", func() bool { return strict.results[Unreachable].Load() > 0 })
	if _, n := strict.sink.get(fleet.Key{ID: 1}); n > 0 {
		t.Error("the sink was told what nobody vouches for")
	}
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) count(text string) int { return strings.Count(b.String(), text) }

// TestLog: endpoints that keep failing are said once, with what to do, however many
// they are; and so is that all are well again.
func TestLog(t *testing.T) {
	var log logBuffer
	var ok atomic.Bool
	var addresses []netip.AddrPort
	for range 5 {
		addresses = append(addresses, serve(t, func(w http.ResponseWriter, r *http.Request) {
			if ok.Load() {
				pageOf(vllmPage)(w, r)
			} else {
				http.NotFound(w, r)
			}
		}))
	}
	r := startWith(t, retryAtOnce, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	r.Update(pool(t, addresses...))
	eventually(t, "they fail on and on", func() bool { return r.results[BadStatus].Load() > 15 && r.Failing() == 5 })
	if log.count("level=WARN") != 1 || log.count("--enable-metrics") != 1 || log.count("status 404") != 1 {
		t.Errorf("log: %s", &log)
	}
	ok.Store(true)
	eventually(t, "all are well", func() bool { return r.Failing() == 0 })
	eventually(t, "the log says so", func() bool { return log.count("can be read again") == 1 })
}

// TestManyEndpoints: 500 endpoints are all scraped, never more than 32 at once, with
// the quarter of them that hangs in nobody's way.
func TestManyEndpoints(t *testing.T) {
	var now, most atomic.Int64
	page := func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		_, _ = w.Write([]byte(vllmPage))
	}
	good, bad := serveAnywhere(t, page), serveAnywhere(t, hang)
	// All of 127.0.0.0/8 is this machine, so that one server is many endpoints.
	var workers []fleet.Worker
	for i := range 500 {
		port := good
		if i%4 == 3 {
			port = bad
		}
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i / 250), byte(i%250 + 1)}), port)
		workers = append(workers, fleet.Worker{Key: fleet.Key{ID: uint64(i)}, Endpoint: at})
	}
	r := startWith(t, func(s *Scraper) {
		s.limit = timeLimit // for those that hang
		retryAtOnce(s)      // on a slow machine others need more than one try
	}, nil)
	r.Update(snapshot(t, workers...))
	eventually(t, "all good ones are scraped", func() bool {
		for _, w := range workers {
			if _, n := r.sink.get(w.Key); n == 0 && w.ID%4 != 3 {
				return false
			}
		}
		return true
	})
	if m := most.Load(); m > atOnce {
		t.Errorf("%d at once", m)
	}
	if d := time.Duration(r.interval.Load()); d != 500*time.Millisecond {
		t.Errorf("500 endpoints are scraped every %v", d)
	}
}

// serveAnywhere serves pages on all addresses of this machine, and returns the port.
func serveAnywhere(t *testing.T, h http.HandlerFunc) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return addrOf(s).Port()
}
