package jinja

import "testing"

// TestUnknownFiltersFailWhenJinja2Says has what jinja2 3.1.6 does: refuses the
// template, fails when it is rendered, or renders it.
func TestUnknownFiltersFailWhenJinja2Says(t *testing.T) {
	const compile, render, fine = "compile", "render", "fine"
	for source, want := range map[string]string{
		"{{ 1|nope }}": compile,
		"{% for x in [] %}{{ x|nope }}{% endfor %}":                                      compile,
		"{% for x in [1] %}{% else %}{{ x|nope }}{% endfor %}":                           compile,
		"{% for x in [] if x|nope %}{% endfor %}":                                        compile,
		"{% for x in [] %}{{ x is nope }}{% endfor %}":                                   compile,
		"{% macro m() %}{{ 1|nope }}{% endmacro %}":                                      compile,
		"{% macro m(a=1|nope) %}{% endmacro %}":                                          compile,
		"{% if false %}{% for x in [] %}{{ x|nope }}{% endfor %}{% endif %}":             compile,
		"{% if false %}{% for x in [] if x is nope %}{% endfor %}{% endif %}":            compile,
		"{% if false %}{% macro m() %}{{ 1|nope }}{% endmacro %}{% endif %}":             compile,
		"{% if false %}{% macro m(a=1|nope) %}{% endmacro %}{% endif %}":                 compile,
		"{% set x %}{{ 1|nope }}{% endset %}":                                            compile,
		"{% if false %}{% set x %}{{ 1|nope }}{% endset %}{% endif %}":                   compile,
		"{% if false %}{% set x | nope %}{% endset %}{% endif %}":                        compile,
		"{% if false %}{% filter nope %}a{% endfilter %}{% endif %}":                     compile,
		"{% if false %}{% filter join(1|nope) %}a{% endfilter %}{% endif %}":             compile,
		"{% if false %}{% call m() %}{{ 1|nope }}{% endcall %}{% endif %}":               compile,
		"{% macro m() %}{% endmacro %}{% call m() %}{{ 1|nope }}{% endcall %}":           compile,
		"{% if false %}{% with a = 1 %}{{ a|nope }}{% endwith %}{% endif %}":             compile,
		"{% if false %}{{ 1|nope }}{% endif %}{{ 1|nope }}":                              compile,
		"{% if false %}{{ 1|nope }}{% endif %}{% for x in [] %}{{ 1|nope }}{% endfor %}": compile,
		"{{ (1|nope) + (2 if true) }}":                                                   compile,
		"{{ [2 if true, 1|nope] }}":                                                      compile,
		"{{ 1 if 1|nope else 2 }}":                                                       render,
		"{% if 1|nope %}{% endif %}":                                                     render,
		"{{ 1|nope if true }}":                                                           render,
		"{% if false %}{{ 1|nope }}{% endif %}":                                          fine,
		"{% if true %}{% elif 1|nope %}{% endif %}":                                      fine,
		"{% if true %}{% else %}{{ 1|nope }}{% endif %}":                                 fine,
		"{% if true %}a{% elif false and 1|nope %}b{% endif %}":                          fine,
		"{% if false %}{% if 1|nope %}{% endif %}{% endif %}":                            fine,
		"{% if false %}{% set x = 1|nope %}{% endif %}":                                  fine,
		"{% if false %}{% with a = 1|nope %}{{ a }}{% endwith %}{% endif %}":             fine,
		"{% if false %}{% for x in []|nope %}{% endfor %}{% endif %}":                    fine,
		"{% if false %}{% call m(1|nope) %}{% endcall %}{% endif %}":                     fine,
		"{% if false %}{{ x is nope }}{% endif %}":                                       fine,
		"{% for x in [] %}{% if false %}{{ x|nope }}{% endif %}{% endfor %}":             fine,
		"{% for x in [] %}{% if x|nope %}{% endif %}{% endfor %}":                        fine,
		"{% for x in [] %}{{ 1|nope if false }}{% endfor %}":                             fine,
		"{% for x in [1] if (x|nope if false else true) %}{{ x }}{% endfor %}":           fine,
		"{% macro m() %}{% if false %}{{ 1|nope }}{% endif %}{% endmacro %}{{ m() }}":    fine,
		"{{ 1|nope if false }}":                                                          fine,
		"{{ 2 if true else 1|nope }}":                                                    fine,
		"{{ (x if y|nope else 3) if false }}":                                            fine,
	} {
		got := fine
		if tmpl, err := Compile(source); err != nil {
			got = compile
		} else if _, err := tmpl.Render(nil, NewDict(nil), Env{}); err != nil {
			got = render
		}
		if got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}
