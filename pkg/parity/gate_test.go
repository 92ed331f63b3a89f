package parity

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// check runs all cases of a gate against engines.
func check(g *Gate, engines ...Engine) []Change {
	cases := g.Cases("")
	var reports []Report
	for i, e := range engines {
		reports = append(reports, Run(fmt.Sprint("engine-", i), cases, bytesOf, e, SpecialAuto, g.Special()))
	}
	return g.Checked(reports)
}

func silent(o Outcome) Engine { return func(*Case) ([]uint32, Outcome) { return nil, o } }

func broken(ids []uint32) ([]uint32, Outcome) { return append(slices.Clone(ids), 1), Agree }

func wantStates(t *testing.T, g *Gate, want map[Shape]State, otherwise State) {
	t.Helper()
	for _, s := range g.Status() {
		state, ok := want[s.Shape]
		if !ok {
			state = otherwise
		}
		open := state == Verified || state == Unchecked && g.policy != Required
		if s.State != state || s.Open != open || g.Open(s.Shape) != open {
			t.Errorf("%v is %v, open %v; want %v, open %v", s.Shape, s.State, s.Open, state, open)
		}
	}
}

func TestGate(t *testing.T) {
	wrongTools := except(agreeing(true), ChatTools, broken)
	wrongChat := except(agreeing(true), Chat, broken)
	noTools := except(agreeing(true), ChatTools, func([]uint32) ([]uint32, Outcome) { return nil, Refused })
	noEndpoint := silent(NoEndpoint)
	for _, tc := range []struct {
		name      string
		policy    Policy
		checks    [][]Engine
		want      map[Shape]State
		otherwise State
	}{
		{"nothing known", WhenAvailable, nil, nil, Unverified},
		{"no engine", WhenAvailable, [][]Engine{{}}, nil, Unverified},
		{"agrees", WhenAvailable, [][]Engine{{agreeing(true)}}, map[Shape]State{ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"agrees, required", Required, [][]Engine{{agreeing(true)}}, map[Shape]State{ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"no endpoint", WhenAvailable, [][]Engine{{noEndpoint}}, nil, Unchecked},
		{"no endpoint, required", Required, [][]Engine{{noEndpoint}}, nil, Unchecked},
		{"some have none", WhenAvailable, [][]Engine{{noEndpoint, agreeing(true), noEndpoint}}, map[Shape]State{ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"unavailable", WhenAvailable, [][]Engine{{silent(Unavailable)}}, nil, Unverified},
		{"unavailable and none", WhenAvailable, [][]Engine{{silent(Unavailable), noEndpoint}}, nil, Unverified},
		{"refuses tools", WhenAvailable, [][]Engine{{noTools}}, map[Shape]State{ChatTools: Unverified, ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"tools differ", WhenAvailable, [][]Engine{{wrongTools}}, map[Shape]State{ChatTools: Mismatch, ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"one of three differs", WhenAvailable, [][]Engine{{agreeing(true), wrongTools, agreeing(true)}}, map[Shape]State{ChatTools: Mismatch, ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"chats differ", WhenAvailable, [][]Engine{{wrongChat}}, map[Shape]State{Chat: Mismatch, Other: Mismatch, ChatMedia: Unverified}, Verified},
		{"differs and agrees again", WhenAvailable, [][]Engine{{wrongChat}, {agreeing(true)}}, map[Shape]State{ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"differs and is gone", WhenAvailable, [][]Engine{{wrongChat}, {silent(Unavailable)}}, map[Shape]State{Chat: Mismatch, Other: Mismatch, ChatMedia: Unverified}, Verified},
		{"agrees and is gone", WhenAvailable, [][]Engine{{agreeing(true)}, {silent(Unavailable)}}, map[Shape]State{ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"gets an endpoint", WhenAvailable, [][]Engine{{noEndpoint}, {agreeing(true)}}, map[Shape]State{ChatMedia: Unverified, Other: Unchecked}, Verified},
		{"loses its endpoint", WhenAvailable, [][]Engine{{agreeing(true)}, {noEndpoint}}, nil, Unchecked},
		{"off", Off, [][]Engine{{wrongChat}}, nil, Unchecked},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewGate(tc.policy, true)
			for _, engines := range tc.checks {
				check(g, engines...)
			}
			wantStates(t, g, tc.want, tc.otherwise)
		})
	}
}

// TestChanges: what changed is told once, with the finding.
func TestChanges(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	wrong := except(agreeing(true), ChatTools, broken)
	changes := check(g, agreeing(true), wrong)
	var tools *Change
	for i, c := range changes {
		if c.From != Unverified || (c.Why != nil) != (c.To == Mismatch) {
			t.Errorf("%+v", c)
		}
		if c.Shape == ChatTools {
			tools = &changes[i]
		}
	}
	if tools == nil || tools.To != Mismatch || tools.Why.Case != "tools" || tools.Why.Engine != "engine-1" || tools.Why.Diff.Token != tools.Why.Diff.Local {
		t.Errorf("tools: %+v", tools)
	}
	if again := check(g, agreeing(true), wrong); len(again) != 0 {
		t.Errorf("told again: %+v", again)
	}
	back := check(g, agreeing(true), agreeing(true))
	if len(back) != 1 || back[0] != (Change{Shape: ChatTools, From: Mismatch, To: Verified}) {
		t.Errorf("back: %+v", back)
	}
	if last := g.Status()[ChatTools].Last; last == nil || last.Case != "tools" {
		t.Errorf("the last finding is %+v", last)
	}
}

// TestSpecialIsLearned from engines, in turn.
func TestSpecialIsLearned(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	for _, special := range []bool{true, false, false, true} {
		check(g, agreeing(special))
		if g.Special() != special || !g.Open(Completion) {
			t.Errorf("special %v, want %v; open %v", g.Special(), special, g.Open(Completion))
		}
	}
	check(g, silent(NoEndpoint))
	if !g.Special() {
		t.Error("what was learned is lost")
	}
}

// TestEnginesDisagreeOnSpecial: no way fits both, so completions differ.
func TestEnginesDisagreeOnSpecial(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	check(g, agreeing(true), agreeing(false))
	wantStates(t, g, map[Shape]State{Completion: Mismatch, ChatMedia: Unverified, Other: Unchecked}, Verified)
}

// TestSpecialTokensOfNoMatter: a tokenizer that adds none agrees both ways, and
// goes along with any other engine.
func TestSpecialTokensOfNoMatter(t *testing.T) {
	plain := func(c *Case, _ bool) ([]uint32, bool, bool) { return bytesOf(c, false) }
	for _, usual := range []bool{true, false} {
		g := NewGate(WhenAvailable, usual)
		either := Run("either", g.Cases(""), plain, agreeing(false), SpecialAuto, usual)
		if !either.With || !either.Without {
			t.Fatalf("with %v, without %v", either.With, either.Without)
		}
		g.Checked([]Report{either})
		if g.Special() != usual || !g.Open(Completion) {
			t.Errorf("special %v, want %v", g.Special(), usual)
		}
		g.Checked([]Report{either, Run("with", g.Cases(""), bytesOf, agreeing(true), SpecialAuto, usual), either})
		if !g.Special() || !g.Open(Completion) {
			t.Error("one engine's word does not count")
		}
	}
}

func live(shape Shape, body string) *Case {
	c := LiveCase(shape, Case{Body: []byte(body)})
	return &c
}

// TestLiveMismatch closes one shape until the very request agrees.
func TestLiveMismatch(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	check(g, agreeing(true))
	const odd = `{"messages":[{"role":"user","content":"odd"}]}`
	changes := g.Live("engine-7", Result{Case: live(Chat, odd), Outcome: Differ, Diff: Diff{3, 9, 8}})
	if len(changes) != 2 || changes[0].Shape != Chat || changes[0].To != Mismatch || *changes[0].Why != (Finding{"live", "engine-7", Diff{3, 9, 8}}) || changes[1].Shape != Other {
		t.Fatalf("%+v", changes)
	}
	want := map[Shape]State{Chat: Mismatch, Other: Mismatch, ChatMedia: Unverified}
	wantStates(t, g, want, Verified)
	picky := func(c *Case) ([]uint32, Outcome) { // differs on that request alone
		ids, o := agreeing(true)(c)
		if string(c.Body) == odd {
			return broken(ids)
		}
		return ids, o
	}
	for range 3 {
		if changes := check(g, picky); len(changes) != 0 {
			t.Fatalf("%+v", changes)
		}
	}
	gone := func(c *Case) ([]uint32, Outcome) { // the engine stops before it comes to that request
		if string(c.Body) == odd {
			return nil, Unavailable
		}
		return agreeing(true)(c)
	}
	check(g, gone)
	wantStates(t, g, want, Verified)
	check(g, agreeing(true))
	wantStates(t, g, map[Shape]State{ChatMedia: Unverified, Other: Unchecked}, Verified)
	if n := len(g.Cases("")); n != len(Canned("")) {
		t.Errorf("%d cases are left", n)
	}
}

// TestExhibitThatIsRefused can show nothing any more.
func TestExhibitThatIsRefused(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	check(g, agreeing(true))
	g.Live("e", Result{Case: live(Chat, "odd"), Outcome: Differ})
	check(g, func(c *Case) ([]uint32, Outcome) {
		if string(c.Body) == "odd" {
			return nil, Refused
		}
		return agreeing(true)(c)
	})
	if !g.Open(Chat) {
		t.Error("the gate stays closed")
	}
}

// TestExhibitsAreLetGo, agreed or not: what clients said is not kept for good.
func TestExhibitsAreLetGo(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	check(g, agreeing(true))
	g.Live("e", Result{Case: live(Chat, "odd"), Outcome: Differ})
	picky := func(c *Case) ([]uint32, Outcome) {
		ids, o := agreeing(true)(c)
		if string(c.Body) == "odd" {
			return broken(ids)
		}
		return ids, o
	}
	for n := range trials {
		if g.Open(Chat) || len(g.Cases("")) == len(Canned("")) {
			t.Fatalf("let go after %d checks, want %d", n, trials)
		}
		check(g, picky)
	}
	if n := len(g.Cases("")); n != len(Canned("")) {
		t.Errorf("%d cases are left", n)
	}
	check(g, picky)
	if !g.Open(Chat) {
		t.Error("closed for ever")
	}
}

func TestExhibitsAreBounded(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	for i := range 3 * exhibits {
		g.Live("e", Result{Case: live(Chat, fmt.Sprint("body ", i)), Outcome: Differ})
	}
	g.Live("e", Result{Case: live(ChatTools, string(make([]byte, exhibitBytes+1))), Outcome: Differ})
	if n := len(g.Cases("")) - len(Canned("")); n != exhibits {
		t.Errorf("%d exhibits are kept, want %d", n, exhibits)
	}
	check(g, agreeing(true))
	if !g.Open(Chat) || !g.Open(ChatTools) {
		t.Error("closed for ever")
	}
}

// TestLiveAgreement verifies a shape that has no canned answer, after a few.
func TestLiveAgreement(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	check(g, agreeing(true))
	agree := Result{Case: live(ChatMedia, "image"), Outcome: Agree}
	for i := range enough {
		if g.Open(ChatMedia) {
			t.Errorf("open after %d requests", i)
		}
		for _, o := range []Outcome{Refused, NoEndpoint, Unavailable, Unsupported} {
			g.Live("e", Result{Case: agree.Case, Outcome: o})
		}
		g.Live("e", agree)
	}
	if !g.Open(ChatMedia) {
		t.Error("still closed")
	}
	g.Live("e", Result{Case: agree.Case, Outcome: Differ})
	for range 2 * enough {
		g.Live("e", agree)
	}
	if g.Open(ChatMedia) {
		t.Error("a mismatch is over without a check")
	}
}

func TestDiffers(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	if g.Differs() {
		t.Error("something is known from the start")
	}
	check(g, except(agreeing(true), ChatTools, broken))
	if !g.Differs() || g.State(ChatTools) != Mismatch || g.State(Chat) != Verified {
		t.Error("tools do not differ")
	}
	check(g, agreeing(true))
	if g.Differs() {
		t.Error("they still do")
	}
}

func TestCovers(t *testing.T) {
	none, all, most := NewGate(WhenAvailable, true), NewGate(WhenAvailable, true), NewGate(WhenAvailable, true)
	check(all, agreeing(true))
	for range enough {
		all.Live("e", Result{Case: live(ChatMedia, "image"), Outcome: Agree})
	}
	check(most, except(agreeing(true), ChatTools, broken))
	fresh := NewGate(WhenAvailable, true)
	check(fresh, agreeing(true))
	for name, tc := range map[string]struct {
		a, b *Gate
		want bool
	}{
		"none none": {none, none, true}, "all none": {all, none, true}, "none most": {none, most, false},
		"most all": {most, all, false}, "all most": {all, most, true}, "all all": {all, all, true},
		"all but media": {fresh, all, true},
	} {
		if got := tc.a.Covers(tc.b); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestGateConcurrently(t *testing.T) {
	g := NewGate(WhenAvailable, true)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				if i%2 == 0 {
					check(g, agreeing(true))
				} else {
					g.Live("e", Result{Case: live(Chat, "x"), Outcome: Differ})
				}
				g.Open(Chat)
				g.Special()
				g.Status()
			}
		})
	}
	wg.Wait()
	check(g, agreeing(true))
	if !g.Open(Chat) {
		t.Error("closed in the end")
	}
}

func TestSampler(t *testing.T) {
	start := time.Unix(1000, 0)
	s := NewSampler(10, time.Second)
	taken := 0
	for i := range 1000 { // 10 requests per second: each tenth is one second after the last
		if s.Take(start.Add(time.Duration(i)*100*time.Millisecond), false) {
			taken++
		}
	}
	if taken != 100 {
		t.Errorf("took %d of 1000, want 100", taken)
	}
	if taken = 0; true {
		for range 1000 { // all at once
			if s.Take(start.Add(time.Hour), false) {
				taken++
			}
		}
	}
	if taken != 1 {
		t.Errorf("took %d at one moment", taken)
	}
	if s.Take(start.Add(time.Hour), true) || !s.Take(start.Add(2*time.Hour), true) || s.Take(start.Add(2*time.Hour), true) {
		t.Error("eager ones do not follow the pause alone")
	}
	if NewSampler(0, 0).Take(start, true) {
		t.Error("0 takes some")
	}
}
