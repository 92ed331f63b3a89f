package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestTokenMedians(t *testing.T) {
	var rounds [][]TokenRow
	for _, v := range []float64{3, 1, 2} {
		rounds = append(rounds, []TokenRow{{Case: "a", Tokens: 7, US: v, RatioToHF: 10 - v}, {Case: "load", PeakMB: 10 * v}})
	}
	got := tokenMedians(rounds)
	want := []TokenRow{{Case: "a", Tokens: 7, US: 2, RatioToHF: 8}, {Case: "load", PeakMB: 20}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

func TestTokenBars(t *testing.T) {
	for _, c := range []struct {
		row  TokenRow
		want string
	}{
		{TokenRow{Case: "encode-10k", US: 5}, "-"}, // nothing to compare with
		{TokenRow{Case: "encode-10k", RatioToHF: 12}, "10x HF"},
		{TokenRow{Case: "encode-100k", RatioToHF: 5}, "10x HF: MISSED, 0.50 of it"},
		{TokenRow{Case: "encode-100k-first", RatioToHF: 5}, "-"},
		{TokenRow{Case: "conversation-20-turns", US: 150}, "200 us"},
		{TokenRow{Case: "body-128k-cold", US: 16000}, "8000 us: MISSED, 2.00 of it"},
		{TokenRow{Case: "body-128k-warm", US: 300}, "300 us"},
		{TokenRow{Case: "load", Tokens: 151_669, US: 5e5, RSSMB: 66}, "1e+06 us, 60 MB: MISSED, 1.10 of it"},
		{TokenRow{Case: "load", Tokens: 262_144, US: 5e6, RSSMB: 660}, "-"},
	} {
		if got := tokenBar(&c.row); got != c.want {
			t.Errorf("%s: %q, want %q", c.row.Case, got, c.want)
		}
	}
}

// Every form holds every row.
func TestWriteTokenRows(t *testing.T) {
	rows := []TokenRow{{Case: "encode-10k", Tokenizer: "qwen3", Text: "code", Tokens: 10_000, RatioToHF: 12.34}, {Case: "load", Tokenizer: "gemma3", HeapMB: 33.3}}
	rows[0].speed(2000)
	for form, want := range map[Output][]string{
		Markdown: {"| case | tokenizer | text | tokens |", "| --- | --- | --- | ---: |", "| encode-10k | qwen3 | code | 10000 | 5.00 | 2000 |", "| 12.3 |", "| load | gemma3 |  |"},
		Table:    {"case", "encode-10k", "2000", "12.3", "33.3"},
		JSON:     {`{"case":"encode-10k","tokenizer":"qwen3","text":"code","tokens":10000,"tokens_per_s":5000000,"us":2000,"ratio_to_hf":12.34}`, `"heap_mb":33.3`},
	} {
		var out bytes.Buffer
		if err := writeRows(&out, form, tokenColumns, rows); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %q in\n%s", form, w, &out)
			}
		}
		if form == JSON && !json.Valid(out.Bytes()) {
			t.Errorf("no JSON: %s", &out)
		}
	}
}
