package extproc

import (
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/pick"
)

// Announcer tells other routers where requests were placed. Nothing of it may
// block: it is called while requests are under way.
type Announcer interface {
	// Placed hears of a decision. It must not keep the chains.
	Placed(p Placement) Announcement
}

// Announcement is a request that was placed.
type Announcement interface {
	// PrefillDone is called at the first output, at most once.
	PrefillDone()
	// Finished is called exactly once, last, however the request ends.
	Finished()
}

// Placement is one request as a decision places it.
type Placement struct {
	RequestID string // the one in the handoff, where that has one
	Adapter   string // the LoRA adapter, empty when there is none

	// Prefill computes the prompt, Decode goes on: the same worker, or a pair.
	Prefill, Decode fleet.Key

	PrefillTokens int           // to compute on Prefill
	Blocks        int           // full blocks of the prompt
	Chains        []block.Chain // of those blocks, empty when not known
}

// announce tells of a decision, if anybody wants to know. Nothing is placed by a
// request without a prompt.
func (s *Server) announce(r *routing, h *head, req *pick.Request, d *pick.Decision) Announcement {
	if r.Announcer == nil || d.Mode == pick.PromptLess {
		return nil
	}
	p := Placement{
		RequestID: s.requestID(h),
		Adapter:   req.Adapter,
		Prefill:   d.Prefill.Key, Decode: d.Decode.Key,
		PrefillTokens: max(0, req.Tokens-d.Matched*r.Layout.Size),
		Blocks:        d.Total,
		Chains:        req.Chains,
	}
	if d.Total == 0 {
		p.Blocks = req.Tokens / r.Layout.Size
	}
	return r.Announcer.Placed(p)
}

// name tells the reservation by which id the workers know the request, where the
// handoff says it: what they say of it counts then.
func (s *Server) name(r *routing, h *head, d *pick.Decision) {
	if d.Mode != pick.PromptLess && d.Reservation != nil && r.namesRequest {
		d.Reservation.Name(s.requestID(h))
	}
}

// requestID is the id of a request: one, whoever asks for it.
func (s *Server) requestID(h *head) string {
	if h.requestID == "" {
		h.requestID = s.cfg.RequestID()
	}
	return h.requestID
}
