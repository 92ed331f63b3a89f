package simengine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// apiError is an error answer in OpenAI's shape.
type apiError struct {
	status  int
	message string
	kind    string
	param   string
	raw     []byte // a whole body to pass on instead, when another worker made it
}

func (e *apiError) Error() string { return e.message }

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "BadRequestError", param: param, message: fmt.Sprintf(format, args...)}
}

func (e *apiError) write(w http.ResponseWriter) {
	if e.raw != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(e.status)
		_, _ = bytes.NewReader(e.raw).WriteTo(w) // the client is gone when this fails
		return
	}
	type detail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	d := detail{Message: e.message, Type: e.kind, Code: e.status}
	if e.param != "" {
		d.Param = &e.param
	}
	writeJSON(w, e.status, map[string]detail{"error": d})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone when this fails
}

// wireRequest is what this worker reads of a request body. Fields it does not
// know are ignored, as vLLM does by default.
type wireRequest struct {
	Model               string          `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            []wireMessage   `json:"messages"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	N                   *int            `json:"n"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	Stream              bool            `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	CacheSalt         string          `json:"cache_salt"`
	ReturnTokenStrs   bool            `json:"return_token_strs"`
	KVTransferParams  *transferParams `json:"kv_transfer_params"`
	AddSpecialTokens  *bool           `json:"add_special_tokens"` // the tokenizer adds none either way
	ChatTemplateExtra json.RawMessage `json:"chat_template_kwargs"`
}

type wireMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// endpoint tells the two generating APIs apart.
type endpoint uint8

const (
	completions endpoint = iota
	chat
)

func (e endpoint) path() string {
	if e == chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// request is a parsed and checked request.
type request struct {
	endpoint     endpoint
	id           string
	body         []byte
	tokens       []uint32
	salt         string
	maxTokens    int
	ignoreEOS    bool
	stream       bool
	includeUsage bool
	transfer     transferParams
}

// Defaults of the most tokens of an answer: completions as in the OpenAI API,
// chat up to what the model length leaves.
const completionTokens = 16

// parse checks a body and turns it into a request.
func (e *Engine) parse(ep endpoint, id string, body []byte) (*request, *apiError) {
	var wire wireRequest
	if apiErr := decodeBody(body, &wire); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := e.checkModel(wire.Model); apiErr != nil {
		return nil, apiErr
	}
	tokens, apiErr := e.promptTokens(ep, body, &wire)
	if apiErr != nil {
		return nil, apiErr
	}
	limit := e.cfg.MaxModelLen
	if len(tokens) >= limit {
		return nil, badRequest("prompt", "the prompt has %d tokens; this model's maximum context length is %d tokens, "+
			"of which the answer needs at least one", len(tokens), limit)
	}
	if wire.N != nil && *wire.N != 1 {
		return nil, badRequest("n", "n is %d: this worker gives one choice per request", *wire.N)
	}
	req := &request{
		endpoint: ep, id: id, body: body, tokens: tokens, salt: wire.CacheSalt, ignoreEOS: wire.IgnoreEOS, stream: wire.Stream,
		includeUsage: wire.StreamOptions != nil && wire.StreamOptions.IncludeUsage,
	}
	if wire.KVTransferParams != nil {
		req.transfer = *wire.KVTransferParams
	}
	room := limit - len(tokens)
	asked := wire.MaxTokens
	if ep == chat && wire.MaxCompletionTokens != nil {
		asked = wire.MaxCompletionTokens
	}
	switch {
	case asked != nil && *asked < 1:
		return nil, badRequest("max_tokens", "max_tokens is %d: ask for at least 1", *asked)
	case asked != nil && *asked > room:
		return nil, badRequest("max_tokens", "max_tokens is %d and the prompt has %d tokens; this model's maximum context "+
			"length is %d tokens", *asked, len(tokens), limit)
	case asked != nil:
		req.maxTokens = *asked
	case ep == chat:
		req.maxTokens = room
	default:
		req.maxTokens = min(room, completionTokens)
	}
	return req, nil
}

func (e *Engine) checkModel(model string) *apiError {
	if model == "" || model == e.cfg.Model {
		return nil
	}
	return &apiError{
		status: http.StatusNotFound, kind: "NotFoundError", param: "model",
		message: fmt.Sprintf("The model `%s` does not exist.", model),
	}
}

func decodeBody(body []byte, into any) *apiError {
	err := json.Unmarshal(body, into)
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return badRequest(wrong.Field, "%s: got %s, which does not fit", wrong.Field, wrong.Value)
	}
	return badRequest("", "the body is not JSON: %s", err)
}

// promptTokens returns the token ids of a request's prompt or messages.
func (e *Engine) promptTokens(ep endpoint, body []byte, wire *wireRequest) ([]uint32, *apiError) {
	if ep == chat && len(wire.Messages) == 0 {
		return nil, badRequest("messages", "messages: at least one is required")
	}
	if e.cfg.Tokenize != nil && (ep == chat || isText(wire.Prompt)) {
		kind := prompt.Completion
		if ep == chat {
			kind = prompt.Chat
		}
		ids, err := e.cfg.Tokenize(kind, body)
		if err != nil {
			return nil, badRequest("", "the prompt cannot be rendered: %s", err)
		}
		return ids, nil
	}
	if ep == completions {
		return completionPrompt(wire.Prompt)
	}
	messages := make([]message, len(wire.Messages))
	for i, m := range wire.Messages {
		if m.Role == "" {
			return nil, badRequest("messages", "messages[%d]: role is required", i)
		}
		content, apiErr := contentText(i, m.Content)
		if apiErr != nil {
			return nil, apiErr
		}
		messages[i] = message{role: m.Role, content: content}
	}
	text := renderChat(messages, wire.AddGenerationPrompt == nil || *wire.AddGenerationPrompt)
	return appendTokens(make([]uint32, 0, len(text)), text), nil
}

// completionPrompt accepts a string, a list of token ids, and a list that holds
// exactly one of either.
func completionPrompt(raw json.RawMessage) ([]uint32, *apiError) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, badRequest("prompt", "prompt is required")
	}
	if raw[0] == '"' {
		return textTokens(raw)
	}
	if raw[0] != '[' {
		return nil, badRequest("prompt", "prompt: neither a string nor a list")
	}
	if first := bytes.TrimSpace(raw[1:])[0]; first != '"' && first != '[' {
		return idTokens(raw)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, badRequest("prompt", "prompt: %s", err)
	}
	if len(list) > 1 {
		return nil, badRequest("prompt", "prompt: a list of %d prompts; this worker takes one prompt per request", len(list))
	}
	if list[0][0] == '"' {
		return textTokens(list[0])
	}
	return idTokens(list[0])
}

// isText says whether a prompt is a text, or a list that begins with one.
func isText(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] == '[' {
		raw = bytes.TrimSpace(raw[1:])
	}
	return len(raw) > 0 && raw[0] == '"'
}

func textTokens(raw json.RawMessage) ([]uint32, *apiError) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, badRequest("prompt", "prompt: %s", err)
	}
	if text == "" {
		return nil, badRequest("prompt", "prompt: it is empty")
	}
	return appendTokens(make([]uint32, 0, len(text)), text), nil
}

func idTokens(raw json.RawMessage) ([]uint32, *apiError) {
	var ids []uint32
	// A null would leave its place at zero.
	if err := json.Unmarshal(raw, &ids); err != nil || bytes.Contains(raw, []byte("null")) {
		return nil, badRequest("prompt", "prompt: token ids are integers from 0 to %d", uint32(math.MaxUint32))
	}
	if len(ids) == 0 {
		return nil, badRequest("prompt", "prompt: it is empty")
	}
	return ids, nil
}

// contentText returns a message's content: a string, null, or a list of parts of
// type text.
func contentText(i int, raw json.RawMessage) (string, *apiError) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", badRequest("messages", "messages[%d]: content is neither a string nor a list of parts", i)
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return "", badRequest("messages", "messages[%d]: this model has no %q parts, only text", i, p.Type)
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// usage is OpenAI's token count of one request.
type usage struct {
	PromptTokens        int            `json:"prompt_tokens"`
	TotalTokens         int            `json:"total_tokens"`
	CompletionTokens    int            `json:"completion_tokens"`
	PromptTokensDetails *promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}
