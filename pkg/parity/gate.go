package parity

import (
	"sync"
	"sync/atomic"
)

// State is what is known of a shape.
type State uint8

// States of a shape.
const (
	// Unverified: no engine has told enough yet. The gate is closed.
	Unverified State = iota
	// Unchecked: no engine can tell its ids. The gate is open, unless the policy
	// is Required.
	Unchecked
	// Verified: all that was compared agreed. The gate is open.
	Verified
	// Mismatch: something differed. The gate is closed until it agrees.
	Mismatch
	// NumStates is the number of states.
	NumStates = 4
)

// String returns the state as a metric label.
func (s State) String() string {
	return [NumStates]string{"unverified", "unchecked", "verified", "mismatch"}[s]
}

// Policy says when the gate is open.
type Policy uint8

// Policies of a gate.
const (
	// WhenAvailable opens where engines agree, and where none can be asked.
	WhenAvailable Policy = iota
	// Required opens only where an engine agrees.
	Required
	// Off opens always.
	Off
)

const (
	// enough live requests that agree make a shape verified.
	enough = 3
	// exhibits of one shape are kept at most, each of at most exhibitBytes, and
	// for at most trials checks: they hold what a client said.
	exhibits     = 4
	exhibitBytes = 1 << 20
	trials       = 60
)

// Gate says for which shapes of requests prompts may be rendered in process.
// Open and Special are cheap; all methods may be called at once.
type Gate struct {
	policy  Policy
	open    [NumShapes]atomic.Bool
	special atomic.Bool

	mu     sync.Mutex
	shapes [NumShapes]shapeState
}

type shapeState struct {
	state    State
	agreed   int       // live requests in a row, while not verified
	exhibits []exhibit // requests that differed; they must agree before it opens
	last     *Finding
}

// exhibit is a request that differed.
type exhibit struct {
	Case

	tried int // in so many checks
}

// Finding is a difference.
type Finding struct {
	Case   string // name of the case
	Engine string
	Diff   Diff
}

// Change is a shape that got another state.
type Change struct {
	Shape    Shape
	From, To State
	Why      *Finding // of a change to Mismatch
}

// NewGate returns a gate about which nothing is known yet. special says how
// completions begin until an engine tells.
func NewGate(policy Policy, special bool) *Gate {
	g := &Gate{policy: policy}
	g.special.Store(special)
	if policy == Off {
		for s := range g.shapes {
			g.shapes[s].state = Unchecked
			g.open[s].Store(true)
		}
	}
	return g
}

// Open says whether prompts of a shape may be rendered in process now.
func (g *Gate) Open(s Shape) bool { return g.open[s].Load() }

// Covers says whether all that another gate lets through passes here, too, but
// for media, about which only live traffic tells.
func (g *Gate) Covers(other *Gate) bool {
	for s := range g.open {
		if Shape(s) != ChatMedia && other.open[s].Load() && !g.open[s].Load() {
			return false
		}
	}
	return true
}

// Special says whether completions get the tokens that the tokenizer adds by
// itself.
func (g *Gate) Special() bool { return g.special.Load() }

// Cases returns what the next check should render: the canned requests, and the
// requests that differed.
func (g *Gate) Cases(model string) []Case {
	list := Canned(model)
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.shapes {
		for _, e := range g.shapes[s].exhibits {
			list = append(list, e.Case)
		}
	}
	return list
}

// Checked takes in what a run over [Gate.Cases] showed about all engines. It
// returns what changed.
func (g *Gate) Checked(reports []Report) []Change {
	if g.policy == Off {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	odd := g.learn(reports)
	var changes []Change
	for s := range NumShapes {
		st := &g.shapes[s]
		v := verdictOf(Shape(s), reports)
		st.acquit(reports)
		if Shape(s) == Completion && v.differ == nil {
			v.differ = odd
		}
		switch {
		case v.differ != nil:
			changes = g.set(changes, Shape(s), Mismatch, v.differ)
		case len(st.exhibits) > 0: // they could not be tried
		case v.counts[Agree] > 0:
			changes = g.set(changes, Shape(s), Verified, nil)
		case v.counts[NoEndpoint] > 0 && v.counts[Refused]+v.counts[Unavailable] == 0:
			changes = g.set(changes, Shape(s), Unchecked, nil)
		}
	}
	return g.follow(changes)
}

// learn takes the way of completions that fits all engines. Where there is none
// it returns a finding about the first engine that stands alone.
func (g *Gate) learn(reports []Report) *Finding {
	special := g.special.Load()
	for _, way := range []bool{special, !special} {
		if oddOne(reports, way) == nil {
			g.special.Store(way)
			return nil
		}
	}
	return oddOne(reports, special)
}

// oddOne returns the first engine whose completions agree only the other way.
func oddOne(reports []Report, special bool) *Finding {
	for _, r := range reports {
		if special && r.Without && !r.With || !special && r.With && !r.Without {
			return &Finding{Case: "special tokens", Engine: r.Engine}
		}
	}
	return nil
}

// verdict is what reports say about one shape.
type verdict struct {
	counts [NumOutcomes]int
	differ *Finding // the first difference
}

func verdictOf(s Shape, reports []Report) (v verdict) {
	for i := range reports {
		for _, r := range reports[i].Results {
			if r.Case.Shape != s {
				continue
			}
			v.counts[r.Outcome]++
			if r.Outcome == Differ && v.differ == nil {
				v.differ = &Finding{Case: r.Case.Name, Engine: reports[i].Engine, Diff: r.Diff}
			}
		}
	}
	return v
}

// acquit drops the exhibits that agree now, that nobody can compare any more, or
// that were tried often enough: the next request like them will differ again.
func (st *shapeState) acquit(reports []Report) {
	kept := st.exhibits[:0]
	for _, e := range st.exhibits {
		var counts [NumOutcomes]int
		for i := range reports {
			for _, r := range reports[i].Results {
				if r.Case.Name == liveName && &r.Case.Body[0] == &e.Body[0] {
					counts[r.Outcome]++
				}
			}
		}
		if e.tried++; e.tried >= trials {
			continue
		}
		if counts[Differ] > 0 || counts[Agree]+counts[Refused]+counts[Unsupported]+counts[NoEndpoint] == 0 {
			kept = append(kept, e)
		}
	}
	clear(st.exhibits[len(kept):])
	st.exhibits = kept
}

// liveName is the name of a case from live traffic.
const liveName = "live"

// LiveCase makes a case of a request. The body is kept.
func LiveCase(shape Shape, c Case) Case {
	c.Name, c.Shape = liveName, shape
	return c
}

// Live takes in the outcome of one request that was rendered both here and by an
// engine. It returns what changed.
func (g *Gate) Live(engine string, r Result) []Change {
	if g.policy == Off || r.Case.Shape == Other {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	st := &g.shapes[r.Case.Shape]
	switch {
	case r.Outcome == Differ:
		if len(st.exhibits) < exhibits && len(r.Case.Body) <= exhibitBytes && len(r.Case.Body) > 0 {
			st.exhibits = append(st.exhibits, exhibit{Case: *r.Case})
		}
		return g.follow(g.set(nil, r.Case.Shape, Mismatch, &Finding{Case: r.Case.Name, Engine: engine, Diff: r.Diff}))
	case r.Outcome != Agree || st.state == Verified || st.state == Mismatch:
		return nil
	}
	if st.agreed++; st.agreed < enough {
		return nil
	}
	return g.follow(g.set(nil, r.Case.Shape, Verified, nil))
}

// set gives a shape a state. The caller holds the lock.
func (g *Gate) set(changes []Change, s Shape, to State, why *Finding) []Change {
	st := &g.shapes[s]
	if why != nil {
		st.last = why
	}
	if st.state == to {
		return changes
	}
	changes = append(changes, Change{Shape: s, From: st.state, To: to, Why: why})
	st.state, st.agreed = to, 0
	g.open[s].Store(to == Verified || to == Unchecked && g.policy != Required)
	return changes
}

// follow gives the shapes that no canned request has the state that chats give
// them. The caller holds the lock.
func (g *Gate) follow(changes []Change) []Change {
	chat := g.shapes[Chat].state
	media := g.shapes[ChatMedia].state
	switch {
	case media == Unverified && chat == Unchecked:
		changes = g.set(changes, ChatMedia, Unchecked, nil)
	case media == Unchecked && chat != Unchecked:
		changes = g.set(changes, ChatMedia, Unverified, nil)
	}
	if chat == Verified {
		chat = Unchecked // nobody renders them, but they become chats
	}
	if g.shapes[Other].state != chat {
		changes = g.set(changes, Other, chat, g.shapes[Chat].last)
	}
	return changes
}

// Status is what is known of one shape.
type Status struct {
	Shape Shape
	State State
	Open  bool
	// Last is the last difference, nil when there was none.
	Last *Finding
}

// Status returns the state of every shape.
func (g *Gate) Status() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]Status, NumShapes)
	for s := range list {
		st := &g.shapes[s]
		list[s] = Status{Shape: Shape(s), State: st.state, Open: g.open[s].Load(), Last: st.last}
	}
	return list
}

// State returns what is known of a shape.
func (g *Gate) State(s Shape) State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shapes[s].state
}

// Differs says whether some shape is known to differ.
func (g *Gate) Differs() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.shapes {
		if g.shapes[s].state == Mismatch {
			return true
		}
	}
	return false
}
