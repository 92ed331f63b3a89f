package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// reply is an HTTP response.
type reply struct {
	status int
	header http.Header
	body   string
}

// prefill and decode say which workers answered, as simulated workers tell.
func (r reply) prefill() string { return r.header.Get("x-sim-prefill-worker") }

func (r reply) decode() string { return r.header.Get("x-sim-decode-worker") }

// cached is how many prompt tokens the worker had in its cache.
func (r reply) cached(t *testing.T) int {
	t.Helper()
	var answer struct {
		Usage struct {
			Details struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
	return answer.Usage.Details.CachedTokens
}

// request is one for this site, to the Gateway. A nil body makes it a GET.
func (s *site) request(path string, body []byte) *http.Request {
	method, reader := http.MethodGet, io.Reader(nil)
	if body != nil {
		method, reader = http.MethodPost, bytes.NewReader(body)
	}
	url := "http://" + at(edgePort) + path
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, reader)
	if err != nil {
		panic(err) // the address is fixed
	}
	req.Host = s.host()
	req.Header.Set("Content-Type", "application/json")
	return req
}

// send sends a request and reads the whole answer, of any status.
func (s *site) send(path string, body []byte) (reply, error) {
	resp, err := probes.Do(s.request(path, body))
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, fmt.Errorf("%s: %w", resp.Status, err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}, nil
}

// complete sends a prompt and wants a 200.
func (s *site) complete(prompt []uint32) reply {
	s.t.Helper()
	r, err := s.send("/v1/completions", completion(prompt))
	if err != nil {
		s.t.Fatal(err)
	}
	if r.status != http.StatusOK {
		s.t.Fatalf("answer %d: %s", r.status, r.body)
	}
	return r
}

// completion is the body of a request whose prompt is token ids.
func completion(prompt []uint32) []byte {
	return generation(prompt, 1, false)
}

func generation(prompt []uint32, count int, stream bool) []byte {
	body, err := json.Marshal(map[string]any{
		"model": model, "prompt": prompt, "max_tokens": count, "stream": stream, "ignore_eos": true,
	})
	if err != nil {
		panic(err) // numbers marshal
	}
	return body
}

// tokens returns a prompt of n blocks that shares no block with one of another seed.
func tokens(seed, n int) []uint32 {
	list := make([]uint32, n*blockSize)
	for i := range list {
		list[i] = uint32(seed*100_000 + i)
	}
	return list
}

// fetch is the body of a 200 answer.
func fetch(url string) (string, error) {
	resp, err := probes.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(text), err
}

// sum adds the series of a metric that have all of the labels.
func sum(t *testing.T, metrics, name string, labels ...string) float64 {
	t.Helper()
	total := 0.0
series:
	for line := range strings.Lines(metrics) {
		head, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found || head != name && !strings.HasPrefix(head, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(head, l) {
				continue series
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %s: %v", line, err)
		}
		total += v
	}
	return total
}
