package app

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// adminHandler serves /metrics, /healthz, /readyz, /explain, /debug/index and
// /debug/tokenizer.
func (a *App) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.ready(); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready:\n"+err.Error()+"\n")
			return
		}
		writeText(w, http.StatusOK, "ready\n")
	})
	mux.HandleFunc("POST /explain", a.explain)
	mux.HandleFunc("GET /debug/index", a.debugIndex)
	mux.HandleFunc("GET /debug/tokenizer", a.debugTokenizer)
	return mux
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client is gone if this fails
}

// indexedWorker is one worker as /debug/index shows it. Ids and chains are
// decimal strings: they do not fit a JSON number.
type indexedWorker struct {
	ID     string         `json:"id"`
	Rank   uint32         `json:"rank"`
	Name   string         `json:"name,omitempty"`
	Role   string         `json:"role,omitempty"`
	Blocks map[string]int `json:"blocks"`
	Chains []string       `json:"chains,omitempty"`
}

// debugIndex shows how many blocks each worker holds, and with ?chains=true
// which (on device).
func (a *App) debugIndex(w http.ResponseWriter, r *http.Request) {
	withChains, _ := strconv.ParseBool(r.URL.Query().Get("chains"))
	index := a.current.Load().events.index
	keys := index.Workers()
	slices.SortFunc(keys, fleet.Key.Compare)
	pool := a.fleet()
	all := make([]indexedWorker, 0, len(keys))
	for _, k := range keys {
		one := indexedWorker{ID: strconv.FormatUint(k.ID, 10), Rank: k.Rank, Blocks: map[string]int{}}
		if i, ok := pool.Index(k); ok {
			one.Name, one.Role = pool.Workers[i].Name, pool.Workers[i].Role.String()
		}
		for t, n := range index.Held(k) {
			one.Blocks[kvevent.Tier(t).String()] = n
		}
		if withChains {
			for _, c := range index.Chains(k, kvevent.Device) {
				one.Chains = append(one.Chains, strconv.FormatUint(uint64(c), 10))
			}
			slices.Sort(one.Chains)
		}
		all = append(all, one)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"workers": all}) // the client is gone if this fails
}
