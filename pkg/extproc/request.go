package extproc

import (
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
)

// bytesPerToken estimates the length of a prompt whose token ids are not known
// (engines.md 6.1).
const bytesPerToken = 4

// maxMediaTokens bounds that estimate for a prompt with images or the like: they
// are a few hundred tokens each, whatever their bytes.
const maxMediaTokens = 4096

// head is what the request headers say.
type head struct {
	kind   prompt.Kind
	post   bool // only a POST carries a prompt
	tenant string
	length int      // content-length, -1 when absent
	strip  []string // routing headers that the client sent
	lent   bool     // the tokenizer has seen the body

	requestID string // empty until somebody asks for it
}

func (h *head) read(headers []*corev3.HeaderValue, routing map[string]bool) {
	*h = head{length: -1, strip: h.strip[:0]}
	method, path := "", ""
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
		case "content-length":
			if n, err := strconv.Atoi(headerValue(header)); err == nil && n >= 0 {
				h.length = n
			}
		default:
			if routing[name] {
				h.strip = append(h.strip, name)
			}
		}
	}
	if h.post = method == "POST"; h.post {
		h.kind = prompt.KindOf(path)
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
	tokens  []uint32
	hashes  []block.Hash
	chains  []block.Chain
	scratch pick.Scratch
}

// maxPooled bounds what a pooled work keeps, in bytes: a rare giant prompt must
// not pin its memory for good.
const maxPooled = 8 << 20

func (s *Server) putWork(w *work) {
	if 4*cap(w.tokens)+8*cap(w.hashes)+8*cap(w.chains)+w.body.Room() <= maxPooled {
		s.works.Put(w)
	}
}

// decide turns a request into a decision, and tells others of it. body is nil when
// it is not read.
func (st *stream) decide(ctx context.Context, body []byte) error {
	s, h := st.srv, &st.head
	w := s.works.Get().(*work)
	defer s.putWork(w)
	req := pick.Request{Subset: st.subset, PromptLess: !h.post}
	adapter := ""
	if h.kind != prompt.Other && body != nil {
		if err := w.body.Scan(h.kind, body); err != nil {
			return err
		}
		tokens := s.tokens(ctx, h, body, w)
		if err := ctx.Err(); err != nil {
			return err // the client went away meanwhile
		}
		req.Tokens = len(tokens)
		if len(tokens) == 0 {
			req.Tokens = estimate(&w.body)
		}
		adapter = s.adapter(w.body.Model)
		req.Chains = s.chains(h, tokens, adapter, w)
		req.NoGuess = w.body.HasMedia
	}
	var err error
	st.decision, err = s.cfg.Picker.Pick(&req, s.cfg.Now(), s.cfg.Random, &w.scratch)
	s.metrics.decided(&st.decision, err)
	if err == nil {
		st.announced = s.announce(h, &req, &st.decision, adapter)
	}
	return err
}

// estimate is the length of a prompt in tokens when its token ids are not known.
func estimate(b *prompt.Body) int {
	n := (b.End - b.Start) / bytesPerToken
	if b.HasMedia {
		n = min(n, maxMediaTokens)
	}
	return n
}

// tokens returns the prompt's exact token ids, or none when they are not known:
// the request is then routed by load.
func (s *Server) tokens(ctx context.Context, h *head, body []byte, w *work) []uint32 {
	if w.body.Exact {
		s.metrics.prompts.WithLabelValues("token_ids").Inc()
		return w.body.Tokens
	}
	if s.cfg.Tokenizer == nil {
		s.metrics.prompts.WithLabelValues("unknown").Inc()
		return nil
	}
	h.lent = true
	tokens, err := s.cfg.Tokenizer.Tokens(ctx, w.tokens[:0], h.kind, body)
	if ctx.Err() != nil {
		return nil // a client that hung up says nothing about the tokenizer
	}
	if err != nil {
		s.metrics.prompts.WithLabelValues("unknown").Inc()
		s.tokenizerFailed(err)
		return nil
	}
	w.tokens = tokens
	s.metrics.prompts.WithLabelValues("engine").Inc()
	s.tokenizerWorks()
	return tokens
}

// chains hashes token ids under the request's adapter and salt.
func (s *Server) chains(h *head, tokens []uint32, adapter string, w *work) []block.Chain {
	salt := w.body.Salt
	if h.tenant != "" {
		salt = h.tenant
	}
	if s.cfg.IgnoreSalt {
		salt = ""
	}
	w.hashes = s.cfg.Layout.AppendHashes(w.hashes[:0], tokens, block.NewSeed(adapter, salt))
	w.chains = block.AppendChains(w.chains[:0], w.hashes)
	return w.chains
}

// adapter is the LoRA adapter that a model is, empty when it is none.
func (s *Server) adapter(model string) string {
	if s.cfg.Adapters[model] {
		return model
	}
	return ""
}
