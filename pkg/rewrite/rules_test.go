package rewrite

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustRules(tb testing.TB, rules ...Rule) *Rules {
	tb.Helper()
	r, err := New(rules)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func first(int) int { return 0 }

func to(models ...string) []Target {
	var out []Target
	for _, m := range models {
		out = append(out, Target{Model: m})
	}
	return out
}

func TestPrecedence(t *testing.T) {
	r := mustRules(
		t,
		Rule{Targets: to("all")},
		Rule{Matches: []string{"a", "b"}, Targets: to("first")},
		Rule{Matches: []string{"b", "c"}, Targets: to("second")},
		Rule{Targets: to("all, again")},
	)
	for model, want := range map[string][2]string{
		"a": {"a", "first"}, "b": {"b", "first"}, "c": {"c", "second"}, "d": {"*", "all"}, "": {"*", "all"}, "*": {"*", "all"}, "A": {"*", "all"},
	} {
		c, ok := Choose(model, first, r)
		if !ok || c.Match != want[0] || c.Model != want[1] || string(c.JSON) != `"`+want[1]+`"` {
			t.Errorf("%q: %+v, %v, want %v", model, c, ok, want)
		}
	}
	if !r.ForAll() {
		t.Error("not for all")
	}
}

func TestSetsInOrder(t *testing.T) {
	one := mustRules(t, Rule{Matches: []string{"a"}, Targets: to("one-a")})
	two := mustRules(t, Rule{Matches: []string{"a"}, Targets: to("two-a")}, Rule{Matches: []string{"b"}, Targets: to("two-b")}, Rule{Targets: to("two-rest")})
	three := mustRules(t, Rule{Matches: []string{"c"}, Targets: to("three-c")}, Rule{Targets: to("three-rest")})
	for model, want := range map[string]string{"a": "one-a", "b": "two-b", "c": "three-c", "d": "two-rest"} {
		if c, ok := Choose(model, first, one, nil, two, three); !ok || c.Model != want {
			t.Errorf("%s: %+v, want %s", model, c, want)
		}
	}
}

func TestNoRule(t *testing.T) {
	only := mustRules(t, Rule{Matches: []string{"a"}, Targets: to("x")})
	for _, r := range []*Rules{nil, mustRules(t), only} {
		if c, ok := Choose("b", first, r); ok || r.ForAll() {
			t.Errorf("%+v", c)
		}
	}
}

func TestWeights(t *testing.T) {
	const draws = 20000
	for name, c := range map[string]struct {
		weights []int
		shares  []float64
	}{
		"none given": {[]int{0, 0, 0, 0}, []float64{.25, .25, .25, .25}},
		"all given":  {[]int{90, 9, 1}, []float64{.9, .09, .01}},
		"some given": {[]int{0, 3, 0, 1}, []float64{0, .75, 0, .25}},
		"largest":    {[]int{MaxWeight, MaxWeight}, []float64{.5, .5}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := Rule{}
			for i, w := range c.weights {
				rule.Targets = append(rule.Targets, Target{string(rune('a' + i)), w})
			}
			r := mustRules(t, rule)
			random := rand.New(rand.NewPCG(1, 2))
			got := map[string]int{}
			for range draws {
				c, _ := Choose("m", random.IntN, r)
				got[c.Model]++
			}
			for i, want := range c.shares {
				share := float64(got[rule.Targets[i].Model]) / draws
				if share < want-.02 || share > want+.02 || want == 0 && share != 0 {
					t.Errorf("target %d has a share of %v, want %v", i, share, want)
				}
			}
		})
	}
}

// TestChooseEqualsTwin compares with a list that has every target as often as it
// weighs.
func TestChooseEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := Rule{Matches: []string{"m"}}
		var listed []string
		given := rapid.Bool().Draw(t, "given")
		for i := range rapid.IntRange(1, 5).Draw(t, "n") {
			target := Target{Model: string(rune('a' + i))}
			times := 1
			if given {
				target.Weight = rapid.IntRange(0, 4).Draw(t, "weight")
				if i == 0 {
					target.Weight = 2
				}
				times = target.Weight
			}
			rule.Targets = append(rule.Targets, target)
			for range times {
				listed = append(listed, target.Model)
			}
		}
		r, err := New([]Rule{rule})
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(0, len(listed)-1).Draw(t, "drawn")
		c, ok := Choose("m", func(most int) int { // not asked when there is one to choose
			if most != len(listed) {
				t.Fatalf("drawn from %d, want %d", most, len(listed))
			}
			return n
		}, r)
		if want := listed[n]; !ok || c.Model != want {
			t.Fatalf("%v, want %s", c, want)
		}
	})
}

func TestInvalidRules(t *testing.T) {
	for want, rule := range map[string]Rule{
		"targets is empty":                    {Matches: []string{"a"}},
		"matches[1] is empty":                 {Matches: []string{"a", ""}, Targets: to("x")},
		"targets[1].modelRewrite is empty":    {Targets: to("x", "")},
		"targets[0].weight is -1":             {Targets: []Target{{"x", -1}}},
		"targets[0].weight is 1000001: it mu": {Targets: []Target{{"x", MaxWeight + 1}}},
	} {
		if _, err := New([]Rule{{Targets: to("fine")}, rule}); err == nil || !strings.Contains(err.Error(), "rule 1: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestQuoteIsJSON(t *testing.T) {
	if got := string(Quote(`org/model<1>&"\` + "\n")); got != `"org/model<1>&\"\\\n"` {
		t.Error(got)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		var back string
		if err := json.Unmarshal(Quote(name), &back); err != nil || back != name {
			t.Fatalf("%q: %q, %v", name, back, err)
		}
	})
}

func TestChooseDoesNotAllocate(t *testing.T) {
	r := mustRules(t, Rule{Matches: []string{"a"}, Targets: to("x", "y")})
	if n := testing.AllocsPerRun(100, func() { Choose("a", first, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
