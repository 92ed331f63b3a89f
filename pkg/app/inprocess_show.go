package app

import (
	"encoding/json"
	"net/http"

	"github.com/warmpath/warmpath/pkg/parity"
	"github.com/warmpath/warmpath/pkg/render"
)

var (
	descShape     = desc("in_process_state", "1 for the state of a sort of requests: verified (engines compute the same token ids), unchecked (no engine can tell), unverified (none told yet), or mismatch. Prompts become token ids in process in the first two.", "shape", "state")
	descFallbacks = desc("in_process_fallbacks_total", "Prompts that were not turned into token ids in process, by reason; an engine is asked for them.", "reason")
	descChecks    = desc("parity_checks_total", "Comparisons with engines, by where the request came from (canned, live) and outcome.", "origin", "outcome")
	descUnsampled = desc("parity_samples_dropped_total", "Requests that should have been compared, but were too large, or too many waited.")
	descLoads     = desc("model_loads_total", "Attempts to get the model's tokenizer and template, by result: ok, or what went wrong.", "result")
	descModel     = desc("model_info", "Always 1; the labels say which files are in use.", "source", "revision")

	descMemoBytes   = desc("prompt_memo_bytes", "Memory of the memo of prompts seen before.")
	descMemoNodes   = desc("prompt_memo_nodes", "Beginnings of prompts that the memo holds.")
	descMemoEvicted = desc("prompt_memo_evicted_total", "Those that had to make room.")
	descMemoLookups = desc("prompt_memo_lookups_total", "Prompts of which the memo knew a beginning (hit), or none (miss).", "result")
	descMemoText    = desc("prompt_memo_text_bytes_total", "Bytes of prompt text that the memo spared (reused), or that were tokenized.", "kind")
)

var origins = [...]string{originCanned: "canned", originLive: "live"}

// gauges shows what is so now.
func (p *inProcess) gauges(gauge emitGauge) {
	m := p.current.Load()
	if m == nil {
		return
	}
	gauge(descModel, 1, m.source, m.revision)
	for _, s := range m.gate.Status() {
		gauge(descShape, 1, s.Shape.String(), s.State.String())
	}
	memo := m.encoder.Stats()
	gauge(descMemoBytes, float64(memo.Bytes))
	gauge(descMemoNodes, float64(memo.Nodes))
}

// counters tells what happened since the part was made.
func (p *inProcess) counters(counter emitCounter) {
	for reason, n := range p.refused.all() {
		counter(descFallbacks, n, reason)
	}
	for result, n := range p.loads.all() {
		counter(descLoads, n, result)
	}
	for origin := range p.checks {
		for o := range p.checks[origin] {
			counter(descChecks, p.checks[origin][o].Load(), origins[origin], parity.Outcome(o).String())
		}
	}
	counter(descUnsampled, p.dropped.Load())
	m := p.current.Load()
	if m == nil {
		return
	}
	memo := m.encoder.Stats()
	counter(descMemoEvicted, memo.Evicted)
	counter(descMemoLookups, memo.Hits, "hit")
	counter(descMemoLookups, memo.Misses, "miss")
	counter(descMemoText, memo.BytesReused, "reused")
	counter(descMemoText, memo.BytesTokenized, "tokenized")
}

// tokenizerPage is what /debug/tokenizer shows.
type tokenizerPage struct {
	InProcess *inProcessPage `json:"inProcess,omitempty"`
	Engines   []enginePage   `json:"engines"`
}

type enginePage struct {
	URL      string            `json:"url"`
	Breaker  string            `json:"breaker"`
	Tokenize bool              `json:"tokenize"` // it has /tokenize and no render endpoint
	Calls    uint64            `json:"calls"`
	Failures map[string]uint64 `json:"failures,omitempty"`
	Seconds  float64           `json:"seconds"` // that all calls took together
}

func enginePages(s render.Stats) []enginePage {
	pages := make([]enginePage, 0, len(s.Engines))
	for _, e := range s.Engines {
		pages = append(pages, enginePage{e.URL, e.Breaker, e.Tokenize, e.Calls, e.Failures, e.Busy.Seconds()})
	}
	return pages
}

type inProcessPage struct {
	Source        string            `json:"source,omitempty"`
	Revision      string            `json:"revision,omitempty"`
	Waiting       string            `json:"waiting,omitempty"`
	Failure       string            `json:"failure,omitempty"`
	SpecialTokens bool              `json:"addSpecialTokens"`
	Shapes        []shapePage       `json:"shapes,omitempty"`
	Fallbacks     map[string]uint64 `json:"fallbacks,omitempty"`
	Memo          *memoPage         `json:"memo,omitempty"`
}

type memoPage struct {
	Hits           uint64 `json:"hits"`
	Misses         uint64 `json:"misses"`
	BytesReused    uint64 `json:"bytesReused"`
	BytesTokenized uint64 `json:"bytesTokenized"`
	Nodes          uint64 `json:"nodes"`
	Bytes          int64  `json:"bytes"`
	Evicted        uint64 `json:"evicted"`
}

type shapePage struct {
	Shape string `json:"shape"`
	State string `json:"state"`
	InUse bool   `json:"inUse"`
	// Last is the last difference, whether it has agreed since or not.
	Last *differencePage `json:"lastDifference,omitempty"`
}

type differencePage struct {
	Case         string `json:"case"`
	Engine       string `json:"engine,omitempty"`
	Token        int    `json:"token"`
	TokensHere   int    `json:"tokensHere"`
	TokensEngine int    `json:"tokensEngine"`
}

// page returns what is known now.
func (p *inProcess) page() *inProcessPage {
	page := &inProcessPage{Fallbacks: p.refused.all()}
	p.mu.Lock()
	page.Waiting, page.Failure = p.waiting, p.failure
	p.mu.Unlock()
	m := p.current.Load()
	if m == nil {
		return page
	}
	memo := m.encoder.Stats()
	page.Source, page.Revision, page.SpecialTokens = m.source, m.revision, m.gate.Special()
	page.Memo = &memoPage{memo.Hits, memo.Misses, memo.BytesReused, memo.BytesTokenized, memo.Nodes, memo.Bytes, memo.Evicted}
	for _, s := range m.gate.Status() {
		one := shapePage{Shape: s.Shape.String(), State: s.State.String(), InUse: s.Open}
		if f := s.Last; f != nil {
			one.Last = &differencePage{f.Case, f.Engine, f.Diff.Token, f.Diff.Local, f.Diff.Engine}
		}
		page.Shapes = append(page.Shapes, one)
	}
	return page
}

// debugTokenizer shows how prompts become token ids.
func (a *App) debugTokenizer(w http.ResponseWriter, _ *http.Request) {
	page := tokenizerPage{}
	if t := a.current.Load().tokenizer; t != nil {
		page.Engines = enginePages(t.Stats())
		if t.inProcess != nil {
			page.InProcess = t.inProcess.page()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page) // the client is gone if this fails
}
