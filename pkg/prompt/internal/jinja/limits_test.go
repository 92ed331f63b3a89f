package jinja

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// code renders a template with limits and returns the code of its error, and
// whether there was one.
func code(t *testing.T, source string, vars *Dict, limits Limits) (Code, bool) {
	t.Helper()
	tmpl, err := Compile(source)
	if err == nil {
		_, err = tmpl.Render(nil, vars, Env{Limits: limits})
	}
	if err == nil {
		return 0, false
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("an error of another type: %v", err)
	}
	return e.Code, true
}

// TestTemplatesThatBlowUpAreStopped tries what would take a process down.
func TestTemplatesThatBlowUpAreStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		source string
		want   Code
	}{
		"long range":        {"{% for i in range(10**9) %}{% endfor %}", Raised},
		"nested loops":      {strings.Repeat("{% for i in range(9999) %}", 5) + strings.Repeat("{% endfor %}", 5), LimitSteps},
		"doubling text":     {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", LimitMemory},
		"doubling concat":   {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", LimitOutput},
		"doubling block":    {"{% set s = 'x' %}" + strings.Repeat("{% set s %}{{ s }}{{ s }}{% endset %}", 60), LimitOutput},
		"doubling list":     {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", LimitMemory},
		"repeated text":     {"{{ 'x' * 10**10 }}", LimitMemory},
		"repeated list":     {"{{ [1] * 10**10 }}", LimitMemory},
		"repeated range":    {"{{ (range(1000)|list) * 10**6 }}", LimitMemory},
		"long power":        {"{{ 10 ** 10 ** 10 }}", Unsupported},
		"recursive macro":   {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", LimitDepth},
		"mutual macros":     {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", LimitDepth},
		"recursive default": {"{% macro f(x=f()) %}{% endmacro %}{{ f() }}", LimitDepth},
		"recursive caller":  {"{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{{ caller() }}{% endmacro %}{% call f() %}{% endcall %}", LimitDepth},
		"recursive loop":    {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", Unsupported},
		"replace":           {"{{ ('x' * 10**6)|replace('', 'y' * 10**6) }}", LimitMemory},
		"replace method":    {"{{ ('x' * 10**6).replace('x', 'y' * 10**6) }}", LimitMemory},
		"join":              {"{{ range(99999)|join('x' * 10**6) }}", LimitOutput},
		"indent":            {"{{ ('\\n' * 10**6)|indent('x' * 10**6, blank=true) }}", LimitMemory},
		"split":             {"{% for i in range(99999) %}{% set x = ('x,' * 10**5).split(',') %}{% endfor %}", LimitMemory},
		"characters":        {"{% for i in range(99999) %}{% set x = ('x' * 10**6)|list %}{% endfor %}", LimitMemory},
		"long output":       {"{% set x = 'x' * 10**6 %}{% for i in range(9999) %}{{ x }}{% endfor %}", LimitOutput},
		"deep list":         {"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", LimitDepth},
		"deep json":         {"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}", LimitDepth},
		"deep equality":     {"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}", LimitDepth},
		"deep order":        {"{% set ns = namespace(x=[1], y=[2]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x < ns.y }}", LimitDepth},
		"wide list":         {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", LimitSteps},
		"wide json":         {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}", LimitSteps},
		"wide equality":     {"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}", LimitSteps},
		"wide order":        {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ ns.x < ns.y }}", LimitSteps},
		"wide key":          {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ {ns.x: 1} }}", LimitSteps},
		"wide item":         {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ {}[ns.x] }}", LimitSteps},
		"wide in":           {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ ns.x in {} }}", LimitSteps},
		"wide in keys":      {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ ns.x in {}.keys() }}", LimitSteps},
		"wide get":          {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ {}.get(ns.x) }}", LimitSteps},
		"wide max":          {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ [ns.x, ns.y]|max }}", LimitSteps},
		"wide sort":         {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ [ns.x, ns.y]|sort }}", LimitSteps},
		"wide unique":       {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ [ns.x, ns.y]|unique|list }}", LimitSteps},
		"wide change":       {"{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}{% for x in [ns.x, ns.y] %}{{ loop.changed(x) }}{% endfor %}", LimitSteps},
		"ordered lists":     {"{% set x = (1,) * 10**5 %}{% set y = (1,) * 10**5 %}{% for i in range(99999) %}{{ x < y }}{% endfor %}", LimitSteps},
		"ordered texts":     {"{% set x = 'x' * 10**7 %}{% set y = 'x' * 10**7 %}{% for i in range(99999) %}{{ x < y }}{% endfor %}", LimitSteps},
		"long keys":         {"{% set x = 'x' * 10**7 %}{% set d = {'x' * 10**7: 1} %}{% for i in range(99999) %}{{ d[x] }}{{ x in d }}{{ d.get(x) }}{% endfor %}", LimitSteps},
		"long affix":        {"{% set x = 'x' * 10**7 %}{% for i in range(99999) %}{{ x.startswith(x) }}{{ x.removeprefix(x) }}{% endfor %}", LimitSteps},
		"many affixes":      {"{% set x = ('y',) * 10**5 %}{% for i in range(99999) %}{{ 'x'.startswith(x) }}{% endfor %}", LimitSteps},
		"strip of a set":    {"{{ ('x' * 10**6).strip('y' * 10**6 ~ 'éx') }}", LimitSteps},
		"long date":         {"{% set x = '%c' * 10**6 %}{% for i in range(99999) %}{% set y = strftime_now(x) %}{% endfor %}", LimitMemory},
		"wide count":        {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ [ns.x].count([[]]) }}{{ [ns.x].index(2) }}", LimitSteps},
		"json of json":      {"{% set ns = namespace(x='\"') %}{% for i in range(60) %}{% set ns.x = ns.x|tojson %}{% endfor %}", LimitOutput},
		"brackets":          {"{{ " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + " }}", Unsupported},
		"lists":             {"{{ " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + " }}", Unsupported},
		"signs":             {"{{ " + strings.Repeat("- ", 50000) + "1 }}", Unsupported},
		"nots":              {"{{ " + strings.Repeat("not ", 50000) + "1 }}", Unsupported},
		"conditions":        {"{{ " + strings.Repeat("1 if 1 else ", 50000) + "1 }}", Unsupported},
		"terms":             {"{{ " + strings.Repeat("1 - ", 100000) + "1 }}", Unsupported},
		"filters":           {"{{ 1" + strings.Repeat("|list", 100000) + " }}", Unsupported},
		"attributes":        {"{{ x" + strings.Repeat(".a", 100000) + " }}", Unsupported},
		"calls":             {"{{ x" + strings.Repeat("()", 100000) + " }}", Unsupported},
		"blocks":            {strings.Repeat("{% if 1 %}", 50000) + strings.Repeat("{% endif %}", 50000), Unsupported},
		"targets":           {"{% for " + strings.Repeat("(", 50000) + "x" + strings.Repeat(")", 50000) + " in y %}{% endfor %}", Unsupported},
		"length":            {strings.Repeat("x", maxSource+1), Unsupported},
		"pad":               {"{{ 'x'.zfill(10**9) }}", Unsupported},
		"wide indent":       {"{{ [[[1]]]|tojson(indent=10**9) }}", Raised},
		"equal texts":       {"{% set x = 'x' * 10**7 %}{% set y = 'x' * 10**7 %}{% for i in range(99999) %}{{ x == y }}{% endfor %}", LimitSteps},
		"search":            {"{% set x = 'x' * 10**7 %}{% for i in range(99999) %}{{ 'y' in x }}{{ x.find('y') }}{{ x.count('y') }}{% endfor %}", LimitSteps},
		"sort":              {"{% for i in range(99999) %}{{ range(9999)|sort|length }}{% endfor %}", LimitMemory},
		"unique":            {"{{ range(99999)|unique|list|length }}", LimitSteps},
		"many variables":    {"{% for i in [1] %}" + manyVariables(50_000) + "{% endfor %}", LimitSteps},
		"many to look at":   {"{% for i in [1] %}" + manyVariables(3_000) + "{% for j in range(9999) %}{{ none_such }}{% endfor %}{% endfor %}", LimitSteps},
		"many parameters":   {"{% macro f(" + manyParameters(50_000) + ") %}{% endmacro %}{{ f() }}", LimitSteps},
		"dict":              {"{% for i in range(99999) %}{% set d = dict(a=1, b=2) %}{% set e = {'a': 1} %}{% endfor %}{% for i in range(99999) %}{% set d = dict(a=1, b=2) %}{% endfor %}{% for i in range(99999) %}{% set d = dict({'a': 1}, b=2).copy() %}{% endfor %}", LimitMemory},
	} {
		t.Run(name, func(t *testing.T) {
			if got, failed := code(t, tc.source, NewDict(nil), Limits{}); !failed || got != tc.want {
				t.Errorf("code %d, failed %v; want code %d", got, failed, tc.want)
			}
		})
	}
}

// manyVariables sets n variables.
func manyVariables(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{%%set v%x=1%%}", i)
	}
	return b.String()
}

// manyParameters are n parameters of a macro.
func manyParameters(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",v%x=1", i)
	}
	return b.String()[1:]
}

func TestLimitsAreThoseGiven(t *testing.T) {
	const loop = "{% for i in range(1000) %}x{% endfor %}"
	asked := 0
	for name, tc := range map[string]struct {
		limits Limits
		want   Code
	}{
		"steps":  {Limits{Steps: 500}, LimitSteps},
		"output": {Limits{Output: 999}, LimitOutput},
		"memory": {Limits{Memory: 1000}, LimitMemory},
		"time":   {Limits{Check: func() bool { asked++; return false }}, LimitTime},
	} {
		if got, failed := code(t, loop, NewDict(nil), tc.limits); !failed || got != tc.want {
			t.Errorf("%s: code %d, failed %v", name, got, failed)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times whether to go on", asked)
	}
	if got, failed := code(t, loop, NewDict(nil), Limits{Steps: 3500, Output: 1000, Memory: 50_000}); failed {
		t.Errorf("code %d within the limits", got)
	}
}

// TestAMachineIsCleanAfterAnError renders again after an error in the middle of
// everything.
func TestAMachineIsCleanAfterAnError(t *testing.T) {
	tmpl, err := Compile("{% macro f(x) %}{% for i in [1] %}{% set y = x %}{{ y }}{{ 1 // z }}{% endfor %}{% endmacro %}[{{ f(a) }}]")
	if err != nil {
		t.Fatal(err)
	}
	vars := func(z int64) *Dict {
		d := NewDict(nil)
		d.Set("a", String("text"))
		d.Set("z", Int(z))
		return d
	}
	for range 3 {
		out, err := tmpl.Render([]byte("kept"), vars(0), Env{})
		if err == nil || string(out) != "kept" {
			t.Fatalf("got %q, %v", out, err)
		}
		if strings.Contains(err.Error(), "text") {
			t.Fatalf("the error quotes a value: %v", err)
		}
		out, err = tmpl.Render([]byte("kept"), vars(1), Env{})
		if err != nil || string(out) != "kept[text1]" {
			t.Fatalf("got %q, %v", out, err)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range readSnippets(f, "testdata/snippets.jsonl") {
		if len(s.source) < 200 {
			f.Add(s.source)
		}
	}
	f.Fuzz(func(t *testing.T, source string) {
		vars := NewDict(nil)
		vars.Set("messages", String("text"))
		code(t, source, vars, Limits{Steps: 10_000, Output: 1 << 16, Memory: 1 << 20})
	})
}
