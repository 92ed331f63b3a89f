package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// Pin names the workers that a frontend in direct mode shall use.
type Pin struct {
	Worker  fleet.Key  // aggregated or decode worker
	Prefill *fleet.Key // nil in a pool without prefill workers
}

// Generation is a set of names for the headers of a Pin.
type Generation int

// Generations of header names (dynamo-live.md section 4).
const (
	OldNames  Generation = iota + 1 // x-worker-instance-id and so on: all versions
	NewNames                        // x-dynamo-worker-instance-id and so on: from 1.3
	BothNames                       // what a picker that serves all versions sends
)

// Headers returns the headers of a Pin.
func (p Pin) Headers(g Generation) http.Header {
	h := http.Header{}
	set := func(name, value string) {
		if g != NewNames {
			h.Set("x-"+name, value)
		}
		if g != OldNames {
			h.Set("x-dynamo-"+name, value)
		}
	}
	set("worker-instance-id", strconv.FormatUint(p.Worker.ID, 10))
	set("dp-rank", strconv.FormatUint(uint64(p.Worker.Rank), 10))
	if p.Prefill != nil {
		set("prefill-instance-id", strconv.FormatUint(p.Prefill.ID, 10))
		set("prefill-dp-rank", strconv.FormatUint(uint64(p.Prefill.Rank), 10))
	}
	return h
}

// Runs returns what [Stack.RanOn] says of a request that was run as pinned.
func (p Pin) Runs() []Run {
	if p.Prefill == nil {
		return []Run{{Role: fleet.Aggregated, Worker: p.Worker.ID}}
	}
	return []Run{{Role: fleet.Prefill, Worker: p.Prefill.ID}, {Role: fleet.Decode, Worker: p.Worker.ID}}
}

// RequestIDHeader sets the id of a request when its value is a UUID; other
// values are ignored.
const RequestIDHeader = "x-dynamo-request-id"

// NewRequestID returns an id to put into RequestIDHeader.
func NewRequestID() string { return uuid.NewString() }

// Completion is an OpenAI completions request for tokens that are given as ids.
type Completion struct {
	Model     string   `json:"model"`
	Prompt    []uint32 `json:"prompt"`
	MaxTokens int      `json:"max_tokens"`
}

func (Completion) path() string { return "/v1/completions" }

// Chat is an OpenAI chat request.
type Chat struct {
	Model     string    `json:"model"`
	Messages  []Message `json:"messages"`
	MaxTokens int       `json:"max_tokens"`
}

// Message is one message of a Chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (Chat) path() string { return "/v1/chat/completions" }

// Tokens returns the chat's prompt as the tiny model's template and tokenizer
// make it (scripts/tiny_model.py).
func (c Chat) Tokens() []uint32 {
	const start, end = 256, 257
	var tokens []uint32
	text := func(s string) {
		for _, b := range []byte(s) {
			tokens = append(tokens, uint32(b))
		}
	}
	for _, m := range c.Messages {
		tokens = append(tokens, start)
		text(m.Role + "\n" + m.Content)
		tokens = append(tokens, end)
		text("\n")
	}
	tokens = append(tokens, start)
	text("assistant\n")
	return tokens
}

// Shaped is a request of another API: its path, and its body without the model.
type Shaped struct {
	Path  string
	Model string
	Body  map[string]any
}

func (s Shaped) path() string { return s.Path }

// MarshalJSON returns the body.
func (s Shaped) MarshalJSON() ([]byte, error) {
	body := maps.Clone(s.Body)
	body["model"] = s.Model
	return json.Marshal(body)
}

// Request is a [Completion], a [Chat] or a [Shaped].
type Request interface{ path() string }

// Reply is the answer to a Request.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte

	// Of a reply with status 200:
	ID           string // the request id after "cmpl-" or "chatcmpl-"
	PromptTokens int
	CachedTokens int // 0 also where the version reports none (before 1.5)
}

// client ignores the machine's HTTP proxy: everything is on 127.0.0.1.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Post sends a request to the OpenAI endpoint at a base URL. An answer of
// any status is a Reply; the error is for no answer and for one that cannot be
// read.
func Post(ctx context.Context, baseURL string, header http.Header, q Request) (Reply, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return Reply{}, err
	}
	r, err := post(ctx, baseURL+q.path(), header, body)
	if err != nil || r.Status != http.StatusOK {
		return r, err
	}
	var parsed struct {
		ID    string `json:"id"`
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
			InputTokens  int `json:"input_tokens"`            // the other APIs' word
			CacheRead    int `json:"cache_read_input_tokens"` // Anthropic's: not among those
			Details      struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(r.Body, &parsed); err != nil {
		return r, fmt.Errorf("reply %q: %w", r.Body, err)
	}
	_, r.ID, _ = strings.Cut(parsed.ID, "cmpl-")
	r.PromptTokens = parsed.Usage.PromptTokens + parsed.Usage.InputTokens + parsed.Usage.CacheRead
	r.CachedTokens = parsed.Usage.Details.CachedTokens
	return r, nil
}

func post(ctx context.Context, url string, header http.Header, body []byte) (Reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("content-type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return Reply{Status: resp.StatusCode, Header: resp.Header, Body: answer}, err
}
