package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// Explained is the answer of POST /explain: where a request would go now, and why.
// It never repeats the prompt.
type Explained struct {
	Model       string  `json:"model"`
	Rho         float64 `json:"rho"` // share of time that workers which compute prompts are busy
	Temperature float64 `json:"temperature,omitempty"`
	BlockSize   int     `json:"blockSize"` // tokens

	Prompt   ExplainedPrompt    `json:"prompt"`
	Decision *ExplainedDecision `json:"decision,omitempty"` // none: see Refusal
	Refusal  string             `json:"refusal,omitempty"`
	Pair     *ExplainedPair     `json:"pair,omitempty"` // none can be made
	Transfer *ExplainedTransfer `json:"transferLearned,omitempty"`
	Workers  []ExplainedWorker  `json:"workers"`
}

// ExplainedPrompt is what is known of the prompt.
type ExplainedPrompt struct {
	Tokens int    `json:"tokens"` // estimated where Source is unknown
	Blocks int    `json:"blocks"` // full ones whose ids are known
	Source string `json:"source"` // of the token ids
}

// ExplainedDecision is where the request would go.
type ExplainedDecision struct {
	Mode    string `json:"mode"`
	Prefill string `json:"prefill"` // computes the prompt
	Decode  string `json:"decode"`
	Matched int    `json:"matchedBlocks"`       // that Prefill need not compute
	Best    int    `json:"bestBlocks"`          // the same of the best worker
	Held    string `json:"condition,omitempty"` // that speaks against a split
	Moot    bool   `json:"conditionMoot,omitempty"`
}

// ExplainedPair is the cheapest pair, whether it is taken or not.
type ExplainedPair struct {
	Distance     string  `json:"distance"`
	Transfer     float64 `json:"transferCost"` // in the unit of the model
	SplitSeconds float64 `json:"splitSeconds"` // estimated time to the first token
	AloneSeconds float64 `json:"aloneSeconds"` // the same of a decode worker alone
}

// ExplainedTransfer is what a transfer takes, as the first outputs of pairs taught.
type ExplainedTransfer struct {
	SerialSeconds   float64 `json:"serialSeconds"`
	SecondsPerToken float64 `json:"secondsPerToken"`
	Samples         int     `json:"samples"`
}

// ExplainedWorker is what a decision knows of a worker. Costs are in tokens for
// Congestion and in blocks for Dynamo; the lowest one wins.
type ExplainedWorker struct {
	Name     string `json:"name"`
	ID       uint64 `json:"id,string"`
	Rank     uint32 `json:"rank"`
	Endpoint string `json:"endpoint"`
	Role     string `json:"role"`
	Side     string `json:"side"` // what it would do
	Chosen   string `json:"chosen,omitempty"`
	Out      string `json:"out,omitempty"` // why it cannot be taken

	Held    ExplainedHeld `json:"held"`
	Shared  int           `json:"sharedBlocks"`       // it would read from a store for all
	Saved   float64       `json:"savedBlocks"`        // weighted by tier
	Active  int           `json:"activeBlocks"`       // of the prompt, in use there already
	Avoided bool          `json:"avoided,omitempty"`  // failed lately
	Penalty float64       `json:"penalty"`            // blocks
	Load    ExplainedLoad `json:"load"`               //
	Cost    ExplainedCost `json:"cost"`               // of what it would do
	Local   ExplainedCost `json:"localCost,omitzero"` // of computing the prompt as well
}

// ExplainedHeld is what a worker holds of the prompt, in blocks.
type ExplainedHeld struct {
	Device   int `json:"device"`
	Host     int `json:"host"`
	Disk     int `json:"disk"`
	External int `json:"external"`
}

// ExplainedLoad is the load of a worker.
type ExplainedLoad struct {
	PrefillTokens   int     `json:"prefillTokens"`
	Ahead           float64 `json:"aheadTokens"` // that a prompt would wait for; the Congestion model goes by it
	DecodeBlocks    int     `json:"decodeBlocks"`
	Requests        int     `json:"requests"`
	SecondsPerToken float64 `json:"secondsPerToken,omitempty"`
	KVBlocks        int     `json:"kvBlocks,omitempty"` // that it has
	KVUse           float64 `json:"kvUse,omitempty"`    // share of them in use, by the engine's word
	Waiting         int     `json:"waiting,omitempty"`  // requests in the engine's own queue
}

// ExplainedCost is a cost in both models.
type ExplainedCost struct {
	Congestion float64 `json:"congestion"`
	Dynamo     float64 `json:"dynamo"`
}

// explain answers where a request would go now. The body is that of the request, the
// headers are its headers, and ?path= is its path: /v1/chat/completions when left out.
func (a *App) explain(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.server.MaxBodyBytes))
	if err != nil {
		writeText(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body could not be read, or is larger than server.maxBodyBytes, %d: %v\n", a.server.MaxBodyBytes, err))
		return
	}
	path := cmp.Or(r.URL.Query().Get("path"), prompt.ChatPath)
	headers := make(map[string]string, len(r.Header))
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = values[0]
	}
	e, source, err := a.extproc.Explain(r.Context(), path, headers, body)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(explained(e, source)) // the client is gone if this fails
}

// explained turns an explanation into its report.
func explained(e *pick.Explanation, source extproc.Source) *Explained {
	x := &Explained{
		Model: e.Model.String(), Rho: e.Rho, Temperature: e.Temperature, BlockSize: e.BlockSize,
		Prompt:  ExplainedPrompt{Tokens: e.Tokens, Blocks: e.Blocks, Source: source.String()},
		Workers: make([]ExplainedWorker, 0, len(e.Workers)),
	}
	for i := range e.Workers {
		x.Workers = append(x.Workers, explainedWorker(&e.Workers[i]))
	}
	if e.SplitEstimate > 0 || e.AloneEstimate > 0 {
		x.Pair = &ExplainedPair{Distance: e.Way.String(), Transfer: e.Transfer, SplitSeconds: e.SplitEstimate, AloneSeconds: e.AloneEstimate}
	}
	if e.TransferSamples > 0 {
		x.Transfer = &ExplainedTransfer{SerialSeconds: e.TransferSerial, SecondsPerToken: e.TransferPerToken, Samples: e.TransferSamples}
	}
	if e.Err != nil {
		x.Refusal = e.Err.Error()
		return x
	}
	prefill, decode := &x.Workers[e.Prefill], &x.Workers[e.Decode]
	prefill.Chosen, decode.Chosen = "prefill", "decode"
	if e.Prefill == e.Decode {
		decode.Chosen = "both"
	}
	held := ""
	if e.Held != pick.Disaggregated {
		held = e.Held.String()
	}
	x.Decision = &ExplainedDecision{
		Mode: e.Mode.String(), Prefill: prefill.Name, Decode: decode.Name, Matched: e.Matched, Best: e.Best, Held: held, Moot: e.Moot,
	}
	return x
}

func explainedWorker(w *pick.WorkerTerms) ExplainedWorker {
	return ExplainedWorker{
		Name: w.Worker.Name, ID: w.Worker.ID, Rank: w.Worker.Rank, Endpoint: w.Worker.Endpoint.String(),
		Role: w.Worker.Role.String(), Side: w.Side.String(), Out: w.Out.String(),
		Held: explainedHeld(w.Held), Shared: w.Shared, Saved: w.Saved, Active: w.Active, Penalty: w.Penalty, Avoided: w.Avoided,
		Load: explainedLoad(w), Cost: explainedCost(w.Cost), Local: explainedCost(w.Local),
	}
}

func explainedHeld(d index.Depth) ExplainedHeld { return ExplainedHeld(d) }

func explainedLoad(w *pick.WorkerTerms) ExplainedLoad {
	f := &w.Load
	return ExplainedLoad{
		PrefillTokens: f.PrefillTokens, Ahead: w.Ahead, DecodeBlocks: f.DecodeBlocks, Requests: f.Requests,
		SecondsPerToken: f.SecondsPerToken, KVBlocks: w.Room, KVUse: f.KVUse, Waiting: f.Waiting,
	}
}

func explainedCost(c [pick.NumModels]float64) ExplainedCost {
	return ExplainedCost{Congestion: c[pick.Congestion], Dynamo: c[pick.Dynamo]}
}

// Compare orders workers for people: the chosen ones first, then by cost in the model
// in use, those that cannot be taken last.
func (x *Explained) Compare(a, b *ExplainedWorker) int {
	rank := func(w *ExplainedWorker) int {
		switch {
		case w.Chosen != "":
			return 0
		case w.Out == "":
			return 1
		}
		return 2
	}
	cost := func(w *ExplainedWorker) float64 {
		if x.Model == pick.Dynamo.String() {
			return w.Cost.Dynamo
		}
		return w.Cost.Congestion
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Side, b.Side), cmp.Compare(cost(a), cost(b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Rank, b.Rank))
}
