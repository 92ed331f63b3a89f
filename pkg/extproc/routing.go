package extproc

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

// Routing is how requests are routed: all of a server that a policy decides. It
// must not be changed once a server has it.
type Routing struct {
	Picker      *pick.Picker
	Layout      block.Layout
	Tokenizer   Tokenizer       // nil: only prompts given as token ids are matched
	DecodeTexts bool            // Tokenizer renders bodies itself: see prompt.Body.Decode
	Adapters    map[string]bool // model names that are LoRA adapters
	IgnoreSalt  bool            // workers hash blocks without the cache salt (Dynamo up to 1.3)
	TextBlocks  bool            // prompts without token ids are matched by their text: the picker remembers that
	Handoff     Handoff         // nil: no handoff headers
	// ClassHeader and SessionHeader are the request headers, in lower case, that name
	// the class and the session of a request; empty: none does.
	ClassHeader, SessionHeader string
	Announcer                  Announcer      // nil: other routers are told nothing
	Rewrites                   *rewrite.Rules // models that take the place of others; nil: none
	ModelHeader                bool           // a header of the request may name another model
	Queueing                   Queueing       // of requests that find all workers busy
	Fallback                   int            // endpoints to name after the picked one, at most MaxFallback

	// Objectives are priorities by the names of objectives, of the policy. They come
	// before those of [Server.SetObjectives].
	Objectives map[string]int

	// Unused, if set, is called once: when another routing has taken the place of
	// this one and the last request that needs this one has let go of it. It must
	// not block: a request may be calling.
	Unused func()
}

// Validate reports what cannot work.
func (r *Routing) Validate() error {
	switch {
	case r.Picker == nil:
		return errors.New("extproc: no picker")
	case r.Layout.Size < 1:
		return fmt.Errorf("extproc: block size %d is less than 1", r.Layout.Size)
	}
	if r.Fallback < 0 || r.Fallback > MaxFallback {
		return fmt.Errorf("extproc: %d fallback endpoints are not 0 to %d", r.Fallback, MaxFallback)
	}
	if err := r.Queueing.Validate(); err != nil {
		return err
	}
	return r.Handoff.Validate()
}

// routing is a Routing in use.
type routing struct {
	Routing

	strip        map[string]bool // headers no client may send
	namesRequest bool            // the handoff tells workers the id of the request
	room         *room           // nil: no request waits
	// users counts the requests that need it, and one for being the current one.
	// At 0 it is over, and never comes back.
	users atomic.Int64
}

func newRouting(r Routing) (*routing, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	next := &routing{Routing: r, strip: routingHeaders(r.Handoff), namesRequest: r.Handoff.Names(RequestID)}
	next.users.Store(1)
	return next, nil
}

// newRouting returns a routing that shares with the one before it, if any, the queue:
// requests that wait are in one line for as long as its rules stay the same, and all of
// them can go on under the new routing.
func (s *Server) newRouting(r Routing, before *routing) (*routing, error) {
	next, err := newRouting(r)
	switch {
	case err != nil || r.Queueing.MaxWait == 0:
		return next, err
	case before != nil && before.room != nil && before.room.Queueing == r.Queueing && next.readsAs(before):
		next.room = before.room
	default:
		next.room = newRoom(r.Queueing, s.metrics.queue, s.cfg.Now)
	}
	return next, nil
}

// Use takes a routing into use for the requests that begin from now on, and for those
// that wait for a worker, unless it reads prompts in another way. Those under way end as
// they began. An error changes nothing.
func (s *Server) Use(r Routing) error {
	next, err := s.newRouting(r, s.routing.Load())
	if err != nil {
		return err
	}
	before := s.routing.Swap(next)
	before.room.fell() // there may be room by the rules of the new one
	before.release()
	return nil
}

// readsAs says whether two routings make the same of a prompt.
func (r *routing) readsAs(other *routing) bool {
	return r.Layout == other.Layout && r.IgnoreSalt == other.IgnoreSalt && r.TextBlocks == other.TextBlocks
}

// acquire returns the current routing. Its caller must release it.
func (s *Server) acquire() *routing {
	for {
		r := s.routing.Load()
		for n := r.users.Load(); n > 0; n = r.users.Load() {
			if r.users.CompareAndSwap(n, n+1) {
				return r
			}
		}
		// It was replaced since we loaded it: there is another one by now.
	}
}

func (r *routing) release() {
	if r.users.Add(-1) == 0 && r.Unused != nil {
		r.Unused()
	}
}
