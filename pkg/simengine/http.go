package simengine

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxBody is the largest body read, in bytes.
const maxBody = 64 << 20

// version is what GET /version says: a worker of this kind, not a real vLLM.
const version = "0.29.0+simengine"

// routes returns the HTTP API: vLLM's, and GET /sim/stats with [Stats] as JSON.
func (e *Engine) routes() http.Handler {
	mux := http.NewServeMux()
	for _, ep := range []endpoint{completions, chat} {
		mux.HandleFunc("POST "+ep.path(), func(w http.ResponseWriter, r *http.Request) { e.handle(w, r, ep) })
		mux.HandleFunc("POST "+ep.path()+"/render", func(w http.ResponseWriter, r *http.Request) { e.render(w, r, ep) })
	}
	mux.HandleFunc("POST /tokenize", e.tokenize)
	mux.HandleFunc("POST /reset_prefix_cache", e.reset)
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": version})
	})
	mux.HandleFunc("GET /sim/stats", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, e.Stats())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		(&apiError{status: http.StatusNotFound, kind: "NotFoundError", message: "Not Found"}).write(w)
	})
	return mux
}

// read takes a request's body and parses it.
func (e *Engine) read(w http.ResponseWriter, r *http.Request, ep endpoint) (*request, *apiError) {
	body, apiErr := readBody(w, r)
	if apiErr != nil {
		return nil, apiErr
	}
	return e.parse(ep, requestID(r.Header), body)
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	tooLarge := &apiError{status: http.StatusRequestEntityTooLarge, kind: "RequestTooLargeError", message: "the body is larger than 64 MiB"}
	if r.ContentLength > maxBody {
		return nil, tooLarge
	}
	var body bytes.Buffer
	if r.ContentLength > 0 {
		body.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		return body.Bytes(), nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge
	}
	return nil, badRequest("", "the body could not be read: %s", err)
}

// requestID returns the id that the caller gave, Dynamo's header first, or a new
// one.
func requestID(h http.Header) string {
	if id := h.Get("x-dynamo-request-id"); uuid.Validate(id) == nil {
		return id
	}
	if id := h.Get("x-request-id"); id != "" {
		return id
	}
	return uuid.NewString()
}

// render answers with the token ids that the generating endpoint would compute
// (engines.md 6.1).
func (e *Engine) render(w http.ResponseWriter, r *http.Request, ep endpoint) {
	req, apiErr := e.read(w, r, ep)
	if apiErr != nil {
		apiErr.write(w)
		return
	}
	out := map[string]any{
		"token_ids": req.tokens, "features": nil, "model": e.cfg.Model, "stream": req.stream,
		"sampling_params": map[string]any{"n": 1, "max_tokens": req.maxTokens, "ignore_eos": req.ignoreEOS},
	}
	if req.salt != "" {
		out["cache_salt"] = req.salt
	}
	if ep == chat {
		out["request_id"] = "chatcmpl-" + req.id
		writeJSON(w, http.StatusOK, out)
		return
	}
	out["request_id"] = "cmpl-" + req.id
	writeJSON(w, http.StatusOK, []any{out})
}

// tokenize answers with the token ids of a prompt or of messages, however long.
func (e *Engine) tokenize(w http.ResponseWriter, r *http.Request) {
	body, apiErr := readBody(w, r)
	var wire wireRequest
	if apiErr == nil {
		apiErr = decodeBody(body, &wire)
	}
	if apiErr == nil {
		apiErr = e.checkModel(wire.Model)
	}
	var tokens []uint32
	if apiErr == nil {
		ep := completions
		if wire.Messages != nil {
			ep = chat
		}
		tokens, apiErr = e.promptTokens(ep, body, &wire)
	}
	if apiErr != nil {
		apiErr.write(w)
		return
	}
	var strs []string
	if wire.ReturnTokenStrs {
		strs = make([]string, len(tokens))
		for i, t := range tokens {
			strs[i] = tokenText(t)
		}
	}
	writeJSON(w, http.StatusOK, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{len(tokens), e.cfg.MaxModelLen, tokens, strs})
}

func (e *Engine) reset(w http.ResponseWriter, _ *http.Request) {
	if err := e.Clear(); err != nil {
		(&apiError{status: http.StatusConflict, kind: "ConflictError", message: err.Error()}).write(w)
	}
}

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list",
		"data": []any{map[string]any{
			"id": e.cfg.Model, "object": "model", "created": e.cfg.Now().Unix(), "owned_by": "warmpath",
			"root": e.cfg.Model, "parent": nil, "max_model_len": e.cfg.MaxModelLen,
			"permission": json.RawMessage("[]"),
		}},
	})
}
