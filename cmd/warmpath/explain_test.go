package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/app"
)

// explains is a picker that answers with one explanation, and keeps what it was asked.
type explains struct {
	*httptest.Server

	path, body string
	header     http.Header
}

func startExplains(t *testing.T, status int, answer string) *explains {
	t.Helper()
	e := &explains{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		e.path, e.body, e.header = r.URL.String(), string(body), r.Header
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(e.Close)
	return e
}

func runExplain(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := command()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(append([]string{"explain"}, args...))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

const anExplanation = `{"model": "Congestion", "rho": 0.25, "blockSize": 16, "prompt": {"tokens": 100, "blocks": 6, "source": "in_process"},
"decision": {"mode": "disaggregated", "prefill": "p-1", "decode": "d-0", "matchedBlocks": 4, "bestBlocks": 6},
"pair": {"distance": "rack", "transferCost": 12.5, "splitSeconds": 0.0104, "aloneSeconds": 0.02}, "transferLearned": {"serialSeconds": 0.003, "secondsPerToken": 2e-6, "samples": 40},
"workers": [
{"name": "d-0", "id": "1", "rank": 0, "endpoint": "10.0.0.1:8000", "role": "Decode", "side": "Decode", "chosen": "decode", "held": {}, "load": {"decodeBlocks": 7}, "cost": {"congestion": 11.2, "dynamo": 13}, "localCost": {"congestion": 111.2, "dynamo": 20}},
{"name": "p-0", "id": "2", "rank": 1, "endpoint": "10.0.0.2:8000", "role": "Prefill", "side": "Prefill", "held": {"device": 6}, "savedBlocks": 6, "load": {"prefillTokens": 4000, "aheadTokens": 4000}, "cost": {"congestion": 3004, "dynamo": 250.25}},
{"name": "p-1", "id": "3", "rank": 0, "endpoint": "10.0.0.3:8000", "role": "Prefill", "side": "Prefill", "chosen": "prefill", "held": {"device": 3, "host": 1}, "savedBlocks": 3.75, "load": {}, "cost": {"congestion": 40, "dynamo": 2.5}},
{"name": "a-0", "id": "4", "rank": 0, "endpoint": "10.0.0.4:8000", "role": "Aggregated", "side": "Aggregated", "out": "outside the gateway's subset", "held": {}, "load": {}, "cost": {}}
]}`

func TestExplainTable(t *testing.T) {
	e := startExplains(t, http.StatusOK, anExplanation)
	out, err := runExplain(t, "--picker", e.URL, "--model", "m", "Why is the sky blue?")
	if err != nil {
		t.Fatal(err)
	}
	if e.path != "/explain?path=%2Fv1%2Fchat%2Fcompletions" || e.body != `{"messages":[{"content":"Why is the sky blue?","role":"user"}],"model":"m"}` {
		t.Errorf("asked %s with %s", e.path, e.body)
	}
	for _, want := range []string{
		"Congestion model, 16 tokens a block. Prompt: 100 tokens, 6 full blocks (in_process).",
		"busy 25 % of the time",
		"Decision: disaggregated. p-1 computes the prompt, d-0 generates the output.",
		"Of the 6 blocks p-1 holds 4, and need not compute them; the best worker holds 6.",
		"Cheapest pair: distance rack, transfer costs 12.5, first token after about 10.4ms; a decode worker alone: after about 20ms.",
		"A transfer takes 3ms and 2ms per 1,000 tokens, learned from 40 requests.",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var rows [][]string
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(f[0], "-") {
			rows = append(rows, f)
		}
	}
	want := []string{
		"d-0 decode 0+0+0+0 0 0 0 7 0 11.2 13 111 chosen for decode",
		"p-1 prefill 3+1+0+0 0 3.75 0 0 0 40 2.5 - chosen for prefill",
		"p-0/1 prefill 6+0+0+0 0 6 4000 0 0 3004 250 -",
		"a-0 aggregated 0+0+0+0 0 0 0 0 0 - - - outside the gateway's subset",
	}
	for i, w := range want {
		if i >= len(rows) || strings.Join(rows[i], " ") != w {
			t.Errorf("row %d: want %q in\n%s", i, w, out)
		}
	}
}

func TestExplainAsks(t *testing.T) {
	e := startExplains(t, http.StatusOK, anExplanation)
	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, []byte(`{"prompt": [1, 2]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := runExplain(t, "--picker", e.URL+"/", "-f", file, "--path", "/v1/completions", "--header", "x-tenant-id=a", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if e.body != `{"prompt": [1, 2]}` || e.path != "/explain?path=%2Fv1%2Fcompletions" || e.header.Get("x-tenant-id") != "a" {
		t.Errorf("asked %s with %s, %v", e.path, e.body, e.header)
	}
	var x app.Explained
	if err := json.Unmarshal([]byte(out), &x); err != nil || len(x.Workers) != 4 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestExplainErrors(t *testing.T) {
	refused := startExplains(t, http.StatusBadRequest, "the body is not JSON\n")
	other := startExplains(t, http.StatusOK, "<html>")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "Give PROMPT and --model"},
		{[]string{"hello"}, "--model is needed"},
		{[]string{"--model", "m", "-f", "x", "hello"}, "not both"},
		{[]string{"-f", "nowhere.json"}, "nowhere.json"},
		{[]string{"--model", "m", "--header", "x", "hello"}, "NAME=VALUE"},
		{[]string{"--model", "m", "-o", "xml", "hello"}, `"xml"`},
		{[]string{"--model", "m", "--picker", "http://127.0.0.1:1", "hello"}, "metrics port"},
		{[]string{"--model", "m", "--picker", refused.URL, "hello"}, "400 Bad Request: the body is not JSON"},
		{[]string{"--model", "m", "--picker", other.URL, "hello"}, "not from a picker"},
	} {
		if _, err := runExplain(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
	}
}
