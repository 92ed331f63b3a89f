package extproc

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// Names of the protocol (endpoint-picker.md 1.2).
const (
	destinationHeader = "x-gateway-destination-endpoint"
	destinationSpace  = "envoy.lb"
	subsetSpace       = "envoy.lb.subset_hint"
	subsetHeader      = "x-gateway-destination-endpoint-subset"
	tenantHeader      = "x-tenant-id"

	objectiveHeader    = "x-llm-d-inference-objective"
	oldObjectiveHeader = "x-gateway-inference-objective"
	fairnessHeader     = "x-llm-d-inference-fairness-id"
	oldFairnessHeader  = "x-gateway-inference-fairness-id"
)

// bytesPerToken estimates the length of a prompt whose token ids are not known
// (engines.md 6.1).
const bytesPerToken = 4

// maxMediaTokens bounds that estimate for what follows the first image or the like
// of a prompt: they are a few hundred tokens each, whatever their bytes.
const maxMediaTokens = 4096

// head is what the request headers say.
type head struct {
	kind           prompt.Kind
	post           bool // only a POST carries a prompt
	tenant         string
	class, session string

	objective string // the name of an InferenceObjective
	fairness  string // whose turn it is, where requests wait

	length int      // content-length, -1 when absent
	strip  []string // routing headers that the client sent
	lent   bool     // the tokenizer may still read the body
	model  string   // that a header asks for, empty for none

	requestID string // empty until somebody asks for it
}

func (h *head) read(headers []*corev3.HeaderValue, r *routing) {
	*h = head{length: -1, strip: h.strip[:0]}
	method, path, oldObjective, oldFairness := "", "", "", ""
	for _, header := range headers {
		// Envoy sends names in lower case; another gateway may not, and a copy
		// must not slip past for that.
		switch name := strings.ToLower(header.Key); name {
		case ":method":
			method = headerValue(header)
		case ":path":
			path = headerValue(header)
		case tenantHeader:
			h.tenant = headerValue(header)
		case objectiveHeader:
			h.objective = headerValue(header)
		case oldObjectiveHeader:
			oldObjective = headerValue(header)
		case fairnessHeader:
			h.fairness = headerValue(header)
		case oldFairnessHeader:
			oldFairness = headerValue(header)
		case "content-length":
			if n, err := strconv.Atoi(headerValue(header)); err == nil && n >= 0 {
				h.length = n
			}
		case modelHeader, oldModelHeader:
			h.readModel(name, headerValue(header))
		default:
			if r.strip[name] {
				h.strip = append(h.strip, name)
			}
			h.readOwn(name, header, r)
		}
	}
	h.objective, h.fairness = cmp.Or(h.objective, oldObjective), cmp.Or(h.fairness, oldFairness)
	if h.post = method == "POST"; h.post {
		h.kind = prompt.KindOf(path)
	}
}

// readOwn reads the headers that the policy names. They are the client's own words,
// and go on to the worker as they are.
func (h *head) readOwn(name string, header *corev3.HeaderValue, r *routing) {
	if name == "" {
		return // no name is that of no header
	}
	if name == r.ClassHeader {
		h.class = headerValue(header)
	}
	if name == r.SessionHeader {
		h.session = headerValue(header)
	}
}

// headerValue returns a header's value: Envoy sends raw_value, other gateways
// may send value.
func headerValue(h *corev3.HeaderValue) string {
	if len(h.RawValue) > 0 {
		return string(h.RawValue)
	}
	return h.Value
}

// readSubset takes the subset hint from a message that has one. A list and a
// comma-joined string mean the same; the last message that has the key counts.
// A part that is no address matches nothing (endpoint-picker.md 1.4).
func readSubset(subset *pick.Subset, msg *extprocv3.ProcessingRequest) {
	space, ok := msg.GetMetadataContext().GetFilterMetadata()[subsetSpace]
	if !ok {
		return
	}
	value, ok := space.GetFields()[subsetHeader]
	if !ok {
		return
	}
	*subset = pick.Subset{Present: true}
	list := value.GetListValue().GetValues()
	if list == nil {
		addToSubset(subset, value.GetStringValue())
	}
	for _, v := range list {
		addToSubset(subset, v.GetStringValue())
	}
}

func addToSubset(subset *pick.Subset, text string) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if host, port, err := net.SplitHostPort(part); err == nil {
			addr, err := netip.ParseAddr(host)
			n, perr := strconv.ParseUint(port, 10, 16)
			if err == nil && perr == nil {
				subset.Endpoints = append(subset.Endpoints, netip.AddrPortFrom(addr.Unmap(), uint16(n)))
			}
			continue
		}
		if addr, err := netip.ParseAddr(strings.Trim(part, "[]")); err == nil {
			subset.Addrs = append(subset.Addrs, addr.Unmap())
		}
	}
}

// work is the memory that turning one request into a decision takes. It goes
// from stream to stream through a pool.
type work struct {
	body    prompt.Body
	prompt  Prompt
	req     pick.Request
	avoid   []netip.AddrPort
	scratch pick.Scratch
}

// maxPooled bounds what a pooled work keeps, in bytes: a rare giant prompt must
// not pin its memory for good.
const maxPooled = 8 << 20

func (s *Server) putWork(w *work) {
	w.prompt.end()
	w.req = pick.Request{}
	if w.prompt.room()+w.body.Room() <= maxPooled {
		s.works.Put(w)
	}
}

// decide turns a request into a decision, and tells others of it. body is nil when
// it is not read.
func (st *stream) decide(ctx context.Context, body []byte) error {
	s, h, r := st.srv, &st.head, st.routing
	w := s.works.Get().(*work)
	defer s.putWork(w)
	w.req = pick.Request{Subset: st.subset, PromptLess: !h.post, Class: h.class, Session: h.session}
	prompted, source := h.kind != prompt.Other && body != nil, Unknown
	if prompted {
		body, err := st.scan(w, body)
		if err == nil {
			err = s.read(ctx, r, h, w, body)
		}
		if err != nil {
			return err
		}
		source = w.prompt.Source
	}
	err := st.place(ctx, w)
	r = st.routing // there may be another one since
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // it went away while it waited for a worker
	}
	s.metrics.decided(&st.decision, source, err)
	if err == nil && prompted {
		s.metrics.askedWith(source)
		st.output = newOutput(r, w)
	}
	if err == nil {
		s.name(r, h, &st.decision)
		st.announced = s.announce(r, h, &w.req, &st.decision)
	}
	return err
}

// read turns the body of a request, which was scanned, into what a decision needs to
// know of it.
func (s *Server) read(ctx context.Context, r *routing, h *head, w *work, body []byte) error {
	w.req.Adapter = r.adapter(w.body.Model)
	w.prompt.start(h.kind, body, &w.body, r.seed(h, w.req.Adapter, &w.body))
	h.lent = true // should it panic
	s.tokenize(ctx, r, w)
	h.lent = w.prompt.Lent
	if err := ctx.Err(); err != nil {
		return err // the client went away meanwhile
	}
	w.ask(&w.req)
	return nil
}

// ask says in req what is known of the prompt.
func (w *work) ask(req *pick.Request) {
	p := &w.prompt
	req.Tokens, req.Chains = p.Tokens, p.Chains
	if p.Tokens == 0 || p.Partial {
		req.Tokens = max(p.Tokens, estimate(&w.body))
	}
	// Chains that end before an image are those of any worker. Where they go on,
	// the worker hashes what comes then differently.
	req.NoGuess = w.body.HasMedia && !p.Partial
	req.Whole = !w.body.Stream
	if len(p.text) > 0 { // which ends before an image, too
		req.Text, req.TextBlockTokens, req.NoGuess = p.text, block.TextTokens, false
	}
}

// estimate is the length of a prompt in tokens when its token ids are not known.
func estimate(b *prompt.Body) int {
	text, rest := b.TextSize()
	text, rest = text/bytesPerToken, rest/bytesPerToken
	if b.HasMedia {
		rest = min(rest, maxMediaTokens)
	}
	return text + rest
}

// seed is what the request's block hashes start from: its adapter and salt.
func (r *routing) seed(h *head, adapter string, b *prompt.Body) block.Seed {
	salt := b.Salt
	if h.tenant != "" {
		salt = h.tenant
	}
	if r.IgnoreSalt {
		salt = ""
	}
	return block.NewSeed(adapter, salt)
}

// adapter is the LoRA adapter that a model is, empty when it is none.
func (r *routing) adapter(model string) string {
	if r.Adapters[model] {
		return model
	}
	return ""
}
