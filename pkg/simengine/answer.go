package simengine

import (
	"encoding/json"
	"net/http"
)

// answer is the way an answer takes to the client: as one JSON object or as a
// stream of events.
type answer interface {
	// begin is called once the request is accepted, before any token exists.
	begin()
	// token adds text; finish is the reason why it is the last, or empty.
	token(text, finish string) error
	// end completes the answer. The transfer parameters may be nil.
	end(u usage, transfer *transferParams)
}

func (e *Engine) newAnswer(w http.ResponseWriter, req *request) answer {
	head := answerHead{id: "cmpl-" + req.id, created: e.cfg.Now().Unix(), model: e.cfg.Model, endpoint: req.endpoint}
	if req.endpoint == chat {
		head.id = "chatcmpl-" + req.id
	}
	if req.stream {
		return &streamAnswer{answerHead: head, w: w, flush: http.NewResponseController(w), includeUsage: req.includeUsage}
	}
	return &wholeAnswer{answerHead: head, w: w}
}

type answerHead struct {
	id       string
	created  int64
	model    string
	endpoint endpoint
}

func (h answerHead) object(name string, choices []any) map[string]any {
	return map[string]any{"id": h.id, "object": name, "created": h.created, "model": h.model, "choices": choices}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// wholeAnswer collects the text and writes one JSON object.
type wholeAnswer struct {
	answerHead
	w      http.ResponseWriter
	text   []byte
	finish string
}

func (a *wholeAnswer) begin() {}

func (a *wholeAnswer) token(text, finish string) error {
	a.text = append(a.text, text...)
	a.finish = finish
	return nil
}

func (a *wholeAnswer) end(u usage, transfer *transferParams) {
	choice := map[string]any{"index": 0, "logprobs": nil, "finish_reason": a.finish, "stop_reason": nil}
	name := "text_completion"
	if a.endpoint == chat {
		name = "chat.completion"
		choice["message"] = map[string]any{"role": "assistant", "content": string(a.text), "refusal": nil, "tool_calls": []any{}}
	} else {
		choice["text"] = string(a.text)
	}
	out := a.object(name, []any{choice})
	out["usage"] = u
	out["kv_transfer_params"] = transfer
	writeJSON(a.w, http.StatusOK, out)
}

// streamAnswer writes one server-sent event per token and flushes each.
type streamAnswer struct {
	answerHead
	w            http.ResponseWriter
	flush        *http.ResponseController
	includeUsage bool
	started      bool
}

func (a *streamAnswer) begin() {
	h := a.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	a.w.WriteHeader(http.StatusOK)
	_ = a.flush.Flush() // a broken connection shows at the first token
}

func (a *streamAnswer) token(text, finish string) error {
	if a.endpoint == completions {
		return a.event(a.object("text_completion", []any{map[string]any{
			"index": 0, "text": text, "logprobs": nil, "finish_reason": orNull(finish), "stop_reason": nil,
		}}))
	}
	if !a.started {
		a.started = true
		if err := a.event(a.chunk(map[string]any{"role": "assistant", "content": ""}, "")); err != nil {
			return err
		}
	}
	return a.event(a.chunk(map[string]any{"content": text}, finish))
}

func (a *streamAnswer) chunk(delta map[string]any, finish string) map[string]any {
	return a.object("chat.completion.chunk", []any{map[string]any{
		"index": 0, "delta": delta, "logprobs": nil, "finish_reason": orNull(finish),
	}})
}

func (a *streamAnswer) end(u usage, _ *transferParams) {
	if a.includeUsage {
		name := "text_completion"
		if a.endpoint == chat {
			name = "chat.completion.chunk"
		}
		out := a.object(name, []any{})
		out["usage"] = u
		if a.event(out) != nil {
			return
		}
	}
	_ = a.raw([]byte("[DONE]")) // the client is gone when this fails
}

func (a *streamAnswer) event(v map[string]any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.raw(data)
}

func (a *streamAnswer) raw(data []byte) error {
	line := make([]byte, 0, len(data)+8)
	line = append(line, "data: "...)
	line = append(line, data...)
	line = append(line, "\n\n"...)
	if _, err := a.w.Write(line); err != nil {
		return err
	}
	return a.flush.Flush()
}
