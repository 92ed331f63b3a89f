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
	Handoff     Handoff         // nil: no handoff headers
	Announcer   Announcer       // nil: other routers are told nothing
	Rewrites    *rewrite.Rules  // models that take the place of others; nil: none
	ModelHeader bool            // a header of the request may name another model

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
	return r.Handoff.Validate()
}

// routing is a Routing in use.
type routing struct {
	Routing

	strip map[string]bool // headers no client may send
	// users counts the requests that need it, and one for being the current one.
	// At 0 it is over, and never comes back.
	users atomic.Int64
}

func newRouting(r Routing) (*routing, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	next := &routing{Routing: r, strip: routingHeaders(r.Handoff)}
	next.users.Store(1)
	return next, nil
}

// Use takes a routing into use for the requests that begin from now on. Those
// under way end as they began. An error changes nothing.
func (s *Server) Use(r Routing) error {
	next, err := newRouting(r)
	if err != nil {
		return err
	}
	s.routing.Swap(next).release()
	return nil
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
