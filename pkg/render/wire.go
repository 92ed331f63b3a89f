package render

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/warmpath/warmpath/pkg/prompt"
)

// keepBuffer is the largest answer whose buffer is kept for the next one, in
// bytes: some 500,000 token ids.
const keepBuffer = 4 << 20

// drainLimit is how much of an answer without use is read, in bytes, so that its
// connection can be used again.
const drainLimit = 64 << 10

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// post sends one request and reads the ids under key in the answer.
func (c *Client) post(ctx context.Context, url string, body []byte, key string, dst []uint32) ([]uint32, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: its address is not a URL", ErrUnavailable)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return nil, transportError(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, drainLimit) // only to keep the connection
		return nil, statusError(resp.StatusCode)
	}
	buf := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= keepBuffer {
			buf.Reset()
			buffers.Put(buf)
		}
	}()
	limit := c.cfg.MaxResponseBytes
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, transportError(ctx, err)
	case n > limit:
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrBadAnswer, limit)
	}
	out, err := prompt.AppendAnswer(dst[:0], key, buf.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	return out, nil
}

// transportError names what kept an answer from arriving. Only causes from the
// network are passed on: those from the HTTP layer can quote an answer.
func transportError(ctx context.Context, err error) error {
	var network net.Error
	var op *net.OpError
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	case ctx.Err() != nil, errors.As(err, &network) && network.Timeout():
		return ErrTimeout
	case errors.As(err, &op):
		return fmt.Errorf("%w: %w", ErrUnavailable, op)
	default:
		return fmt.Errorf("%w: no whole HTTP answer", ErrUnavailable)
	}
}

// statusError is the only judge of status codes. What the engine wrote beside
// the code may quote the prompt, so it is dropped.
func statusError(code int) error {
	kind := ErrUnavailable
	switch code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		kind = ErrRejected
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		kind = ErrUnsupported
	}
	return fmt.Errorf("%w: status %d", kind, code)
}

// The fields that /tokenize knows, beside the prompt (engines.md 6.1).
var (
	chatFields       = []string{"model", "messages", "tools", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "continue_final_message", "add_special_tokens", "add_generation_prompt"}
	completionFields = []string{"model", "add_special_tokens"}
)

// tokenizeBody builds the body for /tokenize from a request. It copies values as
// they are: a template sees the keys of a tool in their order.
func tokenizeBody(kind prompt.Kind, body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil, fmt.Errorf("%w: the body is not a JSON object", ErrRejected)
	}
	out := make([]byte, 0, len(body)+64)
	add := func(name string, value []byte) {
		out = append(out, ",\""...)
		out = append(append(out, name...), "\":"...)
		out = append(out, value...)
	}
	names := chatFields
	if kind == prompt.Completion {
		names = completionFields
		text, err := firstText(fields["prompt"])
		if err != nil {
			return nil, err
		}
		add("prompt", text)
	} else if v := fields["add_generation_prompt"]; len(v) == 0 || string(v) == "null" {
		add("add_generation_prompt", []byte("true"))
	}
	for _, name := range names {
		if v := fields[name]; len(v) > 0 && string(v) != "null" {
			add(name, v)
		}
	}
	out[0] = '{' // the first comma
	return append(out, '}'), nil
}

// firstText returns the first text of a prompt, as JSON. /tokenize takes one.
func firstText(raw json.RawMessage) (json.RawMessage, error) {
	var list []json.RawMessage
	if len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}
	if len(raw) == 0 || raw[0] != '"' {
		return nil, fmt.Errorf("%w: the prompt is not a text", ErrRejected)
	}
	return raw, nil
}
