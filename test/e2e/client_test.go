package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
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

// newClient returns an HTTP client that ends with the test: HTTP/1.1, or HTTP/2
// without TLS.
func newClient(t *testing.T, h2c bool) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 128, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!h2c)
	transport.Protocols.SetUnencryptedHTTP2(h2c)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// once makes a connection per request.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

func get(t *testing.T, url string) reply {
	t.Helper()
	r, err := send(t, once, http.MethodGet, url, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// post sends a JSON body and wants an answer of any status.
func post(t *testing.T, url, body string, header http.Header) reply {
	t.Helper()
	r, err := send(t, once, http.MethodPost, url, strings.NewReader(body), header)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func send(t *testing.T, client *http.Client, method, url string, body io.Reader, header http.Header) (reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		return reply{}, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return do(client, req)
}

// do sends a request and reads the whole answer.
func do(client *http.Client, req *http.Request) (reply, error) {
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, fmt.Errorf("%s %s: %s: %w", req.Method, req.URL, resp.Status, err)
	}
	return reply{resp.StatusCode, resp.Header, string(data)}, nil
}

// completion is the body of a request whose prompt is token ids.
func completion(tokens []uint32) string {
	ids, err := json.Marshal(tokens)
	if err != nil {
		panic(err) // numbers marshal
	}
	return fmt.Sprintf(`{"model":%q,"max_tokens":1,"prompt":%s}`, model, ids)
}

// tokens returns a prompt of n token ids that shares no block with one of
// another seed.
func tokens(seed, n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = uint32(seed*100_000 + i)
	}
	return list
}

// complete sends a prompt through the gateway and wants a 200.
func (s *stack) complete(prompt []uint32) reply {
	s.t.Helper()
	return s.ok(s.post("/v1/completions", completion(prompt), nil))
}

// post sends a JSON body through the gateway.
func (s *stack) post(path, body string, header http.Header) reply {
	s.t.Helper()
	r, err := send(s.t, s.client, http.MethodPost, s.url+path, strings.NewReader(body), header)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *stack) ok(r reply) reply {
	s.t.Helper()
	if r.status != http.StatusOK {
		s.t.Fatalf("answer %d: %s", r.status, r.body)
	}
	return r
}

// chat sends a chat through the gateway, wants a 200, and returns the prompt
// tokens that the worker found in its cache too.
func (s *stack) chat(system, user string) (reply, int) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"model": model, "max_tokens": 1, "messages": []map[string]string{
		{"role": "system", "content": system}, {"role": "user", "content": user},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	r := s.ok(s.post("/v1/chat/completions", string(body), nil))
	return r, cachedTokens(s.t, r)
}

// cachedTokens is what the worker reports in usage.
func cachedTokens(t *testing.T, r reply) int {
	t.Helper()
	var answer struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
		t.Fatalf("answer %s: %v", r.body, err)
	}
	return answer.Usage.Details.Cached
}

// wantError wants a refusal by the picker in the shape of OpenAI's API.
func wantError(t *testing.T, r reply, status int, code string) {
	t.Helper()
	var body struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil {
		t.Errorf("answer %d %q is not JSON: %v", r.status, r.body, err)
		return
	}
	if r.status != status || body.Error.Code != code || body.Error.Message == "" || body.Error.Type == "" {
		t.Errorf("answer %d %s, want %d with code %q", r.status, r.body, status, code)
	}
	if got := r.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
}

// dial opens a raw connection to the gateway.
func (s *stack) dial() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.front.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	return conn
}
