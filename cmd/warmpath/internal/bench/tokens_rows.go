package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// TokenRow is one case of the benchmark of prompts to tokens. What a case does not
// measure is left out.
type TokenRow struct {
	Case       string  `json:"case"`
	Tokenizer  string  `json:"tokenizer"`
	Text       string  `json:"text"`
	Tokens     int     `json:"tokens"`
	TokensPerS float64 `json:"tokens_per_s"`
	US         float64 `json:"us"` // CPU time of one call
	// RatioToHF is how many times as long Hugging Face tokenizers took, with
	// the same text in the same run. hack/oracle/compare.py fills it in.
	RatioToHF float64 `json:"ratio_to_hf,omitempty"`

	Bytes  int     `json:"bytes,omitempty"`   // of the text or the body
	MaxUS  float64 `json:"max_us,omitempty"`  // the slowest of several different calls
	Allocs float64 `json:"allocs,omitempty"`  // of one call
	HeapMB float64 `json:"heap_mb,omitempty"` // live after loading, with nothing else loaded
	RSSMB  float64 `json:"rss_mb,omitempty"`  // what loading added to the process's memory
	PeakMB float64 `json:"peak_mb,omitempty"` // the most that the process ever had

	HFUS     float64 `json:"hf_us,omitempty"`      // compare.py: the time of encode
	HFFastUS float64 `json:"hf_fast_us,omitempty"` // compare.py: the time of encode_batch_fast
}

// speed notes how long one call took.
func (r *TokenRow) speed(callUS float64) {
	r.US = callUS
	if callUS > 0 {
		r.TokensPerS = float64(r.Tokens) / callUS * 1e6
	}
}

// tokenFigures are the fields that vary from round to round.
func (r *TokenRow) tokenFigures() []*float64 {
	return []*float64{&r.TokensPerS, &r.US, &r.RatioToHF, &r.MaxUS, &r.Allocs, &r.HeapMB, &r.RSSMB, &r.PeakMB, &r.HFUS, &r.HFFastUS}
}

// tokenMedians takes the median of each figure over rounds of the same cases.
func tokenMedians(rounds [][]TokenRow) []TokenRow {
	out := slices.Clone(rounds[0])
	for i := range out {
		for f, figure := range out[i].tokenFigures() {
			var values []float64
			for _, r := range rounds {
				values = append(values, *r[i].tokenFigures()[f])
			}
			slices.Sort(values)
			*figure = values[len(values)/2]
		}
	}
	return out
}

// tokenTarget is what a case must reach. Zero asks for nothing.
type tokenTarget struct {
	prefix string  // of the case
	ratio  float64 // at least, to Hugging Face
	us     float64 // at most
	rss    float64 // at most, MB, for vocabularies of up to mostTokens
}

const mostTokens = 160_000

var tokenTargets = []tokenTarget{
	{prefix: "encode-10k", ratio: 10},
	{prefix: "encode-100k", ratio: 10},
	{prefix: "conversation-20-turns", us: 200},
	{prefix: "body-128k-cold", us: 8000},
	{prefix: "body-128k-warm", us: 300},
	{prefix: "load", us: 1e6, rss: 60},
}

// tokenBar says what a row must reach, and by how much it is missed if it is.
func tokenBar(r *TokenRow) string {
	for _, t := range tokenTargets {
		if t.prefix == r.Case {
			return t.judge(r)
		}
	}
	return "-"
}

func (t *tokenTarget) judge(r *TokenRow) string {
	if r.Case == "load" && r.Tokens > mostTokens {
		return "-" // the bar is for a smaller vocabulary
	}
	var asked, missed []string
	ask := func(limit, got float64, text string, least bool) {
		if limit == 0 || got == 0 {
			return
		}
		asked = append(asked, fmt.Sprintf(text, limit))
		if over := got / limit; least && over < 1 || !least && over > 1 {
			missed = append(missed, fmt.Sprintf("%.2f of it", over))
		}
	}
	ask(t.ratio, r.RatioToHF, "%gx HF", true)
	ask(t.us, r.US, "%g us", false)
	ask(t.rss, r.RSSMB, "%g MB", false)
	switch {
	case len(asked) == 0:
		return "-"
	case len(missed) > 0:
		return strings.Join(asked, ", ") + ": MISSED, " + strings.Join(missed, ", ")
	}
	return strings.Join(asked, ", ")
}

var tokenColumns = []column[TokenRow]{
	{title: "case", left: true, text: func(r *TokenRow) string { return r.Case }},
	{title: "tokenizer", left: true, text: func(r *TokenRow) string { return r.Tokenizer }},
	{title: "text", left: true, text: func(r *TokenRow) string { return r.Text }},
	{title: "tokens", text: func(r *TokenRow) string { return strconv.Itoa(r.Tokens) }},
	number("M tokens/s", 1e6, 2, func(r *TokenRow) float64 { return r.TokensPerS }),
	number("us", 1, 0, func(r *TokenRow) float64 { return r.US }),
	number("longest us", 1, 0, func(r *TokenRow) float64 { return r.MaxUS }),
	number("HF us", 1, 0, func(r *TokenRow) float64 { return r.HFUS }),
	number("times HF", 1, 1, func(r *TokenRow) float64 { return r.RatioToHF }),
	number("allocations", 1, 0, func(r *TokenRow) float64 { return r.Allocs }),
	number("heap MB", 1, 1, func(r *TokenRow) float64 { return r.HeapMB }),
	number("resident MB", 1, 1, func(r *TokenRow) float64 { return r.RSSMB }),
	number("peak MB", 1, 1, func(r *TokenRow) float64 { return r.PeakMB }),
	{title: "bar", left: true, text: tokenBar},
}
