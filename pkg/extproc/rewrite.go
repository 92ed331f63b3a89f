package extproc

import (
	"bytes"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

// Headers that name the model to ask for (endpoint-picker.md 1.2). They are for
// gateways: where the policy does not allow them nobody may send them, and workers
// never see them.
const (
	modelHeader    = "x-llm-d-model-name-rewrite"
	oldModelHeader = "x-gateway-model-name-rewrite"
	lengthHeader   = "content-length"
)

// maxAskedName bounds the name that is put into responses, in bytes: a client must
// not make every event of its response as long as it likes.
const maxAskedName = 1024

// renamed is what a stream knows of a request whose model was replaced. The zero
// value is one whose model was not.
type renamed struct {
	request bool           // the body says another name now
	asked   []byte         // the name as the client wrote it; empty when responses say what they say
	reply   *rewrite.Reply // of a response that can be changed
}

// UseRewrites takes rules into use besides those of the routing, which come first.
func (s *Server) UseRewrites(r *rewrite.Rules) { s.rewrites.Store(r) }

// readModel reads a header that names a model. The newer name of the two wins.
func (h *head) readModel(name, value string) {
	h.strip = append(h.strip, name)
	if value != "" && (h.model == "" || name == modelHeader) {
		h.model = value
	}
}

// choose scans the body and returns the model that takes the place of the one it
// names, nil when none does: the one that a rule chose, else one that a header asks
// for (endpoint-picker.md 1.7).
func (s *Server) choose(r *routing, h *head, w *work, data []byte) (*rewrite.Choice, error) {
	rules := s.rewrites.Load()
	byHeader := r.ModelHeader && h.model != ""
	w.body.Decode = r.DecodeTexts
	w.body.ModelOptional = byHeader || r.Rewrites.ForAll() || rules.ForAll()
	if err := w.body.Scan(h.kind, data); err != nil {
		return nil, err
	}
	choice, ok := rewrite.Choose(w.body.Model, s.cfg.Random, r.Rewrites, rules)
	if !ok && byHeader {
		choice = &rewrite.Choice{Model: h.model, JSON: rewrite.Quote(h.model)}
	}
	return choice, nil
}

// scan reads the body, and returns it as it goes on, with the name of the chosen
// model. What is known of the body afterwards is that of the changed one.
func (st *stream) scan(w *work, data []byte) ([]byte, error) {
	s, h := st.srv, &st.head
	choice, err := s.choose(st.routing, h, w, data)
	if choice == nil || err != nil {
		return data, err
	}
	if choice.Match != "" {
		s.metrics.rewrites.WithLabelValues(choice.Match, choice.Model).Inc()
	} else { // a name that came with the request is no label
		s.metrics.rewrites.WithLabelValues(rewrite.All, rewrite.All).Inc()
	}
	if choice.Model == w.body.Model {
		return data, nil
	}
	st.renamed.request = true
	if name := w.body.ModelText(data); len(name) <= maxAskedName {
		st.renamed.asked = bytes.Clone(name)
	}
	st.body.replace(func(dst []byte) []byte { return w.body.AppendModel(dst, data, choice.JSON) })
	return st.body.bytes(), w.body.Scan(h.kind, st.body.bytes())
}

// scan is the same for a request that is not served.
func (s *Server) scan(r *routing, h *head, w *work, data []byte) ([]byte, error) {
	choice, err := s.choose(r, h, w, data)
	if choice == nil || err != nil || choice.Model == w.body.Model {
		return data, err
	}
	data = w.body.AppendModel(nil, data, choice.JSON)
	return data, w.body.Scan(h.kind, data)
}

// nameModel puts into the answer that carries the decision what a changed body
// needs. A length is set only where there was one: whatever a gateway makes of it,
// it is right (envoy.md 7).
func (st *stream) nameModel(change *extprocv3.CommonResponse) {
	if !st.renamed.request {
		return
	}
	data := st.body.bytes()
	if st.head.length >= 0 {
		m := change.HeaderMutation
		m.SetHeaders = append(m.SetHeaders, overwrite(lengthHeader, strconv.Itoa(len(data))))
	}
	if st.duplex == buffered {
		change.BodyMutation = wholeBody(data)
	}
}

func wholeBody(data []byte) *extprocv3.BodyMutation {
	return &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: data}}
}

// replyHeaders decides whether the model's name in the response is set back. The
// length of a response that comes in chunks is not known then, and so not said.
func (st *stream) replyHeaders(m *extprocv3.HttpHeaders) *extprocv3.CommonResponse {
	n := &st.renamed
	if len(n.asked) == 0 || m.GetEndOfStream() || st.reply == notSent {
		return nil
	}
	f := formatOf(m.GetHeaders().GetHeaders())
	if f.encoded {
		if !st.srv.encoded.Swap(true) {
			st.srv.cfg.Log.Warn("a response is compressed, so the model's name in it is not set back to the one asked for; make the workers not compress; this is said once")
		}
		return nil
	}
	if !f.events && !f.json {
		return nil
	}
	inner := ""
	switch {
	case !f.events:
	case st.head.kind == prompt.AnthropicMessages:
		inner = rewrite.InMessage
	case st.head.kind == prompt.Responses:
		inner = rewrite.InResponse
	}
	n.reply = rewrite.NewReply(n.asked, inner, f.events)
	if st.reply == buffered {
		return nil // the length is known with the body
	}
	return &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{RemoveHeaders: []string{lengthHeader}}}
}

// format is what the headers of a response say of its body.
type format struct{ events, json, encoded bool }

func formatOf(headers []*corev3.HeaderValue) format {
	var f format
	for _, h := range headers {
		switch strings.ToLower(h.Key) {
		case "content-type":
			kind, _, _ := strings.Cut(headerValue(h), ";")
			kind = strings.ToLower(strings.TrimSpace(kind))
			f.events = kind == "text/event-stream"
			f.json = kind == "application/json" || strings.HasSuffix(kind, "+json")
		case "content-encoding":
			coding := strings.TrimSpace(headerValue(h))
			f.encoded = coding != "" && !strings.EqualFold(coding, "identity")
		}
	}
	return f
}

// next returns the next bytes of a response as they go on.
func (n *renamed) next(chunk []byte) []byte {
	if n.reply == nil {
		return chunk
	}
	return n.reply.Next(chunk)
}

// replyBody is the answer to a piece of a response in the modes that leave the body
// to the gateway: nil to leave it as it is.
func (st *stream) replyBody(m *extprocv3.HttpBody) *extprocv3.CommonResponse {
	if st.renamed.reply == nil {
		return nil
	}
	data := st.renamed.next(m.GetBody())
	if bytes.Equal(data, m.GetBody()) {
		return nil
	}
	c := &extprocv3.CommonResponse{BodyMutation: wholeBody(data)}
	if st.reply == buffered {
		c.HeaderMutation = &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{overwrite(lengthHeader, strconv.Itoa(len(data)))}}
	}
	return c
}
