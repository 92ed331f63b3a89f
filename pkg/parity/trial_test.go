package parity

import (
	"slices"
	"testing"
)

// bytesOf renders a case as the bytes of its body. A completion gets a token
// before them where special says so.
func bytesOf(c *Case, special bool) (ids []uint32, partial, ok bool) {
	if special && c.Shape == Completion {
		ids = append(ids, 1000)
	}
	for _, b := range c.Body {
		ids = append(ids, uint32(b))
	}
	return ids, false, true
}

// agreeing is an engine that computes what bytesOf does.
func agreeing(special bool) Engine {
	return func(c *Case) ([]uint32, Outcome) {
		ids, _, _ := bytesOf(c, special)
		return ids, Agree
	}
}

// except changes what an engine tells about cases of one shape.
func except(e Engine, shape Shape, change func(ids []uint32) ([]uint32, Outcome)) Engine {
	return func(c *Case) ([]uint32, Outcome) {
		ids, outcome := e(c)
		if c.Shape == shape {
			return change(ids)
		}
		return ids, outcome
	}
}

func outcomes(r Report) (of [NumShapes][NumOutcomes]int) {
	for _, one := range r.Results {
		of[one.Case.Shape][one.Outcome]++
	}
	return of
}

func TestRunLearnsSpecialTokens(t *testing.T) {
	cases := Canned("")
	for _, tc := range []struct {
		special              Special
		usual, engine, agree bool
	}{
		{SpecialAuto, true, true, true},
		{SpecialAuto, true, false, true},
		{SpecialAuto, false, true, true},
		{SpecialAuto, false, false, true},
		{SpecialAlways, false, true, true},
		{SpecialAlways, false, false, false},
		{SpecialNever, true, false, true},
		{SpecialNever, true, true, false},
	} {
		r := Run("e", cases, bytesOf, agreeing(tc.engine), tc.special, tc.usual)
		of := outcomes(r)
		if r.With != (tc.agree && tc.engine) || r.Without != (tc.agree && !tc.engine) || (of[Completion][Differ] == 0) != tc.agree {
			t.Errorf("%+v: with %v, without %v, %v", tc, r.With, r.Without, of[Completion])
		}
		if of[Chat][Agree] == 0 || of[Chat][Differ] > 0 || of[ChatTools][Differ] > 0 {
			t.Errorf("%+v: chats %v", tc, of)
		}
		if len(r.Results) != len(cases) || r.Engine != "e" {
			t.Errorf("%d results of %q", len(r.Results), r.Engine)
		}
	}
}

// TestRunSaysWhere: a difference has its place.
func TestRunSaysWhere(t *testing.T) {
	wrong := except(agreeing(true), ChatTools, func(ids []uint32) ([]uint32, Outcome) {
		ids = slices.Clone(ids)
		ids[7]++
		return append(ids, 1), Agree
	})
	for _, r := range Run("e", Canned(""), bytesOf, wrong, SpecialAuto, true).Results {
		if r.Case.Shape != ChatTools {
			if r.Outcome != Agree {
				t.Errorf("%s: %v", r.Case.Name, r.Outcome)
			}
			continue
		}
		n := len(r.Case.Body)
		if want := (Diff{7, n, n + 1}); r.Outcome != Differ || r.Diff != want {
			t.Errorf("%s: %v at %+v, want %+v", r.Case.Name, r.Outcome, r.Diff, want)
		}
	}
}

// TestRunAsksNoSilentEngine twice about the same.
func TestRunAsksNoSilentEngine(t *testing.T) {
	for _, silence := range []Outcome{NoEndpoint, Unavailable, Refused} {
		asked := 0
		engine := func(c *Case) ([]uint32, Outcome) {
			if c.Shape == Completion {
				return agreeing(true)(c)
			}
			asked++
			return nil, silence
		}
		cases := Canned("")
		r := Run("e", cases, bytesOf, engine, SpecialAuto, true)
		of, chats := outcomes(r), 0
		for s := range of {
			if Shape(s) != Completion {
				chats += of[s][silence]
				if silence == Refused { // all: it cannot tell about chats
					chats += of[s][NoEndpoint]
				}
			}
		}
		want := 1
		if silence == Refused {
			want = chats
			if of[Chat][Refused] > 0 {
				t.Errorf("refusals of all chats: %v", of)
			}
		}
		if asked != want || of[Completion][Agree] == 0 || chats+of[Completion][Agree] != len(cases) {
			t.Errorf("%v: asked %d times, %v", silence, asked, of)
		}
	}
}

func TestRunCannotRender(t *testing.T) {
	local := func(c *Case, special bool) ([]uint32, bool, bool) {
		if c.Shape == ChatTools || c.Name == "raw text" {
			return nil, false, false
		}
		return bytesOf(c, special)
	}
	r := Run("e", Canned(""), local, agreeing(false), SpecialAuto, true)
	of := outcomes(r)
	if of[ChatTools][Unsupported] != 2 || of[Completion][Unsupported] != 1 || r.With || !r.Without {
		t.Errorf("with %v, without %v, %v", r.With, r.Without, of)
	}
}
