#!/usr/bin/env python3
"""Writes small templates with what jinja2 3.1.6 makes of them, for
pkg/prompt/internal/jinja: every operator, filter, test and method on values of
every type, white space control, and random templates from a grammar.

    python hack/templates/snippets.py OUT [RANDOM [SEED]]

RANDOM is how many random templates come on top (default 300; with more than
500 no other is left out). Each line of OUT is a JSON list of a template and its text, null where jinja2 refuses it.
"""
import itertools
import json
import random
import re
import sys

from golden import environment

VALUES = {
    "u": None, "n": "none", "t": "true", "f": "false", "i": "7", "z": "0", "m": "-3", "x": "2.5", "w": "1.0", "s": "'aBc'", "e": "''",
    "q": "' it\\'s \"x\" '", "k": "'Zürich 東京'", "l": "[3, 1, 'a']", "v": "[]", "p": "(1, 2)", "d": "{'a': 1, 'items': [2], 'b': {'c': none}}",
    "o": "{}", "r": "range(3)", "y": "{'a': 1}.keys()", "j": "['b', 'A', 'a']", "nl": "'one\\n  two\\n\\nthree '", "nums": "[3, 1, 2]",
    "ms": "[{'a': 2, 'b': 'x'}, {'a': 1, 'b': 'Y'}, {'a': 2}]", "h": "'<a & b>'", "num": "' 42 '", "fl": "'3.5'", "big": "9007199254740993",
}
NAMES = list(VALUES)
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SMALL = [op for op in BINARY if op not in ("**", "*")]
FILTERS = [
    "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)", "default('D')", "default('D', true)",
    "d(1)", "trim", "trim('a ')", "lower", "upper", "capitalize", "title", "first", "last", "length", "count", "list", "reverse", "reverse|list", "items|list",
    "dictsort", "dictsort(reverse=true)", "dictsort(by='value')", "sort", "sort(reverse=true)", "sort(attribute='a')", "sort(case_sensitive=true)", "unique|list",
    "map('upper')|list", "map(attribute='a')|list", "map(attribute='b', default='-')|list", "map('default', 1)|list", "select|list", "reject|list",
    "select('string')|list", "select('gt', 1)|list", "reject('equalto', 1)|list", "selectattr('a')|list", "selectattr('a', 'equalto', 2)|list",
    "rejectattr('b', 'defined')|list", "int", "int(5)", "float", "abs", "round", "round(1)", "round(0, 'floor')", "max", "min", "sum", "sum(attribute='a')",
    "join", "join(', ')", "join('-', attribute='a')", "string", "safe", "replace('a', 'X')", "replace('', '.')", "replace('a', 'X', 1)", "indent", "indent(2)",
    "indent(2, true)", "indent('>', blank=true)", "batch(2)|list", "string|length", "list|length", "tojson|safe", "safe|upper", "map('length')|list", "format(1)",
]
TESTS = [
    "defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "callable", "iterable", "sequence",
    "odd", "even", "divisibleby 3", "divisibleby(2)", "eq 1", "ne 1", "gt 1", "lt(3)", "in [1, 2, 'a']", "upper", "lower", "sameas none", "sameas(true)", "escaped",
    "equalto 'aBc'",
]
METHODS = [
    "strip()", "strip(' a')", "lstrip()", "rstrip('c')", "split()", "split('a')", "split(' ', 1)", "split(none, 1)", "rsplit('e', 1)", "splitlines()",
    "startswith('a')", "startswith(('x', 'a'))", "endswith('c')", "replace('a', 'b')", "replace('a', 'b', 1)", "upper()", "lower()", "title()", "capitalize()",
    "swapcase()", "find('B')", "rfind('e')", "index('B')", "count('a')", "count('')", "join(['x', 'y'])", "join([1])", "format(1)", "isdigit()", "isalpha()", "isspace()", "isupper()",
    "islower()", "zfill(6)", "removeprefix('a')", "removesuffix('c')", "partition('B')", "items()", "keys()", "values()", "get('a')", "get('zz')", "get('zz', 4)",
    "copy()", "index(1)", "append(1)", "pop()", "update({})", "items()|list", "values()|list", "keys()|list", "nothing()", "a", "items", "zz", "b.c", "__class__", "pop", "0",
    "items is defined", "append is defined", "zz is defined", "get is callable",
]
SUBSCRIPTS = ["0", "-1", "9", "'a'", "'items'", "'get'", "true", "1.0", "none", "1:", ":2", "::-1", "-2:", ":-1", "1:3:2", "5:1:-2", "::0", "'x':", "zz", "(1,2)"]
SPACE = [
    "a {% if true %} b {% endif %} c", "a\n  {% if true %}\n b\n  {% endif %}\nc", "a\n  {%- if true -%}\n b\n  {%- endif -%}\n c", "x {{- ' y ' -}} z", "a\n{{ 1 }}\nb",
    "  {% set q = 1 %}  \n b", "  {# c #}\n  x {# d #} y\n", "a {#- c -#} b", "a\n {%+ if true %} b{% endif +%}\n c", "{% raw %}{{ x }} {% y %}{% endraw %}\n z",
    "  {% raw %}  r  {% endraw %}  z", "a {%- raw -%}  r  {%- endraw -%}  z", "a\n\n{% if true %}\n\nb{% endif %}\n\n", "\n a", "a\r\nb\rc\n", "{% if true %}{% endif %}\n\n x",
    "{{ 'a' }}\n  {% if true %}x{% endif %}", "{{ 'a' }}  {% if true %}x{% endif %}", "  {% if true %}x{% endif %}", "a  {% if true %}x{% endif %}", "{ { x", "{", "a{", "{{ '}}' }}", "{{ {'a': {'b': 1}} }}",
    "{% for x in [1, 2] %}\n  {{ x }}\n{% endfor %}\n", "{%- for x in [1, 2] -%}\n {{ x }} {{ x }}\n{%- endfor -%}\n", "a\u00a0{%- if true %}b{% endif %}", "\t {% if true %}\t x{% endif %}", "x\u2028{% if true %}y{% endif %}",
    "{{ 1 }}{#- c #} x", "{# a\n b #}\n\n x", "{#+ a #} b", "  {#+ a #} b", "a\n{% if true +%}\n b{% endif %}", "a {{+ 1 }}", "a {{ 1 +}} b", "{{ 1 -}}\n  {% if true %}x{% endif %}",
]
STATEMENTS = [
    "{% for x in [1, 2] %}{{ x }}{% break %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% continue %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}", "{% for x in [1, 2] if x %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}",
    "{% for x in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }};{% endfor %}",
    "{% for x in nums if x > 1 %}{{ x }}{{ loop.length }}{% else %}none{% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ a }}{% endfor %}", "{% for x in 'añc' %}{{ x }}.{% endfor %}",
    "{% for x in u %}x{% else %}e{% endfor %}", "{% for x in n %}x{% endfor %}", "{% for x in 7 %}x{% endfor %}", "{% for x in d %}{{ x }}{% endfor %}", "{% for x in nums %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in nums %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for x in nums %}{{ y }}{% set y = x %}{{ y }}{% endfor %}{{ y }}",
    "{% for x in nums %}{{ y is defined }}{% set y = x %}{% endfor %}", "{% set ns = namespace(a=1, b='x') %}{% for x in nums %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns['a'] }}",
    "{% set ns = namespace() %}{{ ns.x is defined }}{% set ns.x = 1 %}{{ ns.x }}", "{% set d.a = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = (1, 2, 3) %}", "{% set a = 1, 2 %}{{ a }}", "{% set x %}a{{ 1 }}b{% endset %}{{ x }}|{{ x is string }}",
    "{% set x | upper | trim %} ab {% endset %}{{ x }}", "{% set x %}{% set q = 1 %}{% endset %}{{ q }}{{ x|length }}", "{% if false %}{% set q = 1 %}{% endif %}{{ q is defined }}", "{% if true %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f() }}{{ f(1, 2, 3) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(a=2) }}",
    "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(1) }}", "{% macro f() %}{{ g }}{% endmacro %}{% set g = 5 %}{{ f() }}", "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{% macro f() %}{% set zz = 1 %}{% endmacro %}{{ f() }}{{ zz }}",
    "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}body{{ i }}{% endcall %}", "{% macro f() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}", "{% macro f() %}x{% endmacro %}{% call f() %}{% endcall %}",
    "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}a{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% generation %}x{% set q = 1 %}{% endgeneration %}{{ q }}y", "{{ raise_exception('no') }}", "{{ strftime_now('%d %b %Y %-d %H:%M %%') }}", "{{ range(5)|list }}{{ range(1, 5)|list }}{{ range(5, 0, -2)|list }}{{ range(3)[1] }}{{ range(0)|length }}",
    "{{ range(200000)|length }}", "{{ dict(a=1, b=2) }}{{ dict({'x': 1}, y=2) }}", "{% set j = joiner('|') %}{% for x in nums %}{{ j() }}{{ x }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}",
    "{% for x in nums %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}", "{% for x in nums %}{% for y in nums %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in nums %}{% set o = loop %}{% for y in nums %}{{ o.index }}{% endfor %}{% endfor %}",
    "{% set g = nums|select('gt', 1) %}{{ g|list }}{{ g|list }}", "{% if nums|select('gt', 9) %}y{% else %}n{% endif %}", "{% if nums|select('gt', 9)|list %}y{% else %}n{% endif %}", "{{ (nums|map('string'))|length }}", "{{ nums|map('string')|first }}",
    "{{ 1 if false }}|{{ 'a' if u else 'b' }}|{{ 1 if true else u.x }}|{{ (1 if f) is undefined }}", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 == true }}", "{{ not u }}{{ not 1 == 2 }}{{ -2 ** 2 }}{{ 2 ** 3 ** 2 }}{{ 7 // -2 }}{{ -7 % 3 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}",
    "{{ -3|abs }}{{ (-3)|abs }}{{ 'a' ~ 1 + 2 }}{{ 1 ~ none ~ u ~ true ~ 1.0 }}{{ 'a' 'b' }}", "{{ u.a }}", "{{ u['a'] }}", "{{ u[1:] }}", "{{ u() }}", "{{ n.a }}|{{ n['a'] }}|{{ n.a is defined }}", "{{ n.a.b }}", "{{ i.a }}", "{{ s.zz }}{{ s['zz'] }}",
    "{{ [1, 2.0, 'x', none, true, {'a': \"it's\"}, (1,), ()] }}", "{{ {'a': 'b\\n', 1: 2, none: 3, 1.5: [], true: 4} }}", "{{ {'a': 1, 1: 2, 1.0: 3} }}", "{{ {1: 2}|tojson }}{{ {none: 1, true: 2, 1.5: 3}|tojson }}", "{{ '\\u00e9\\x41\\t\\\\\\q\\101' }}", "{{ \"a\\\"b\" }}",
    "{{ 1e3 }}{{ 1.5e-7 }}{{ 1e16 }}{{ 123456789.123 }}{{ 1e22 }}{{ 0.1 + 0.2 }}{{ 1_000 }}{{ 100.0 }}", "{{ nums[0] }}{{ nums.0 }}{{ d.b.c }}{{ ms[0].a }}{{ ms[0]['b'] }}", "{{ 'a%sb%d%%' % ('x', 3) }}{{ '%s' % 'y' }}", "{{ '%s' % ('a', 'b') }}", "{{ '{} {}'.format(1, 'a') }}{{ '{1}{0}'.format(1, 2) }}{{ '{a}'.format(a=1) }}",
    "{{ h|safe + h }}{{ h + h|safe }}{{ (h|safe) ~ h }}{{ (h|safe)|tojson }}{{ [h|safe, h]|join('&') }}{{ h|tojson|safe + '<' }}", "{{ x is nothing }}", "{{ x|nothing }}", "{% if false %}{{ x|nothing }}{% endif %}ok", "{% if true %}{{ x|nothing }}{% endif %}", "{% nothing %}", "{{ 1 + }}", "{{ (1 }}", "{{ ) }}", "{% if %}{% endif %}",
    "{% if true %}", "{% endif %}", "{% for x in nums %}{{ loop }}{% endfor %}", "{{ range }}", "{% macro f() %}{% endmacro %}{{ f }}", "{{ {'a': 1}.keys() }}", "{{ nums|map('string') }}", "{{ namespace(a=1) }}", "{% set loop = 1 %}{{ loop }}", "{% set true = 1 %}", "{{ True }}{{ None }}{{ False }}{{ null is defined }}",
    "{{ x.__class__ }}|{{ s.__len__ is defined }}", "{{ ms|selectattr('b', 'defined')|map(attribute='b')|join(',') }}", "{{ ms|groupby('a') }}", "{{ ms|sort(attribute='a')|map(attribute='a')|list }}", "{{ ms|map(attribute='b.c')|list }}", "{{ 'a,b'.split(',')[-1] }}{{ 'a</think>b'.split('</think>')[0].rstrip('\\n') }}",
    "{% for x in nums recursive %}{% endfor %}", "{{ nums is sequence and nums is not string }}{{ d is mapping and d is iterable }}", "{{ 5 is divisibleby 2 }}{{ 4 is not odd }}{{ x is not defined or x > 1 }}", "{{ d.items()|length }}{{ d.items()|list|length }}{{ d.keys() is sequence }}", "{% for x in d.items()|sort %}{{ x[0] }}{% endfor %}",
    "{% set x = [] %}{% set x = x + [1] %}{{ x }}", "{% set x = 'a' %}{% set x = x * 3 %}{{ x }}{{ 3 * 'ab' }}{{ [1] * 2 }}{{ 'a' * -1 }}", "{{ nums == [3, 1, 2] }}{{ nums == (3, 1, 2) }}{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}{{ 1 == true }}{{ none == u }}{{ u == u2 }}{{ '1' == 1 }}", "{{ 'a' < 'b' }}{{ 'Z' < 'a' }}{{ '10' < '9' }}{{ [1, 2] < [1, 3] }}{{ 1 < 1.5 }}", "{{ 'a' < 1 }}", "{{ none < 1 }}",
    "{{ 1 in nums }}{{ 'a' in 'abc' }}{{ 'a' in d }}{{ 1 in u }}{{ 'x' not in 'abc' }}", "{{ 1 in 'abc' }}", "{{ 1 in none }}", "{{ [] in d }}", "{{ none in [none] }}{{ 1.0 in [1] }}{{ u in [1] }}", "{{ 3 / 2 }}{{ 4 / 2 }}{{ 1 / 0 }}", "{{ 9223372036854775807 }}{{ 2 ** 10 }}{{ 2 ** -1 }}{{ 7 % 2.5 }}", "{{ lipsum() }}", "{{ nothing() }}", "{{ i() }}",
    "{%- macro r(c) -%}{%- if c is string -%}{{ c }}{%- elif c is iterable and c is not mapping -%}{%- for p in c -%}{{ r(p) }}{%- endfor -%}{%- else -%}?{%- endif -%}{%- endmacro -%}{{ r(['a', ['b', 1], 'c']) }}", "{{ s[::-1] }}{{ s[1:] }}{{ k[0] }}{{ k[-2:] }}{{ k|length }}", "{{ 'x'.join(j) }}{{ j|sort }}{{ j|sort(case_sensitive=true) }}{{ j|unique|list }}",
    "{% for x in [1,2,3]|reverse %}{{ x }}{{ loop.last }}{% endfor %}", "{% for x in nums[::-1] %}{{ x }}{% endfor %}", "{% set m = namespace(q=false) %}{% for x in nums if not m.q %}{% set m.q = true %}{{ x }}{% endfor %}", "{{ varargs }}", "{% macro f() %}{{ varargs }}{% endmacro %}{{ f(1) }}", "{{ loop }}", "{{ self }}", "{% block a %}{% endblock %}", "{% extends 'a' %}", "{% include 'a' %}", "{% do nums.append(1) %}",
]


def fixed(share):
    """Snippets of all operators and so on; one in share of those on one value."""
    keep = lambda s: hash_of(s) % share == 0
    for a, op, b in itertools.product(NAMES, BINARY, NAMES):
        if op == "**" and "big" in (a, b):
            continue  # Python would compute it
        if (hash_of(a + op + b)) % 6 == 0 or a == b:
            yield "{{ " + f"{a} {op} {b}" + " }}"
    for a in NAMES:
        yield "{{ " + a + " }}|{{ -" + a + " }}"
        yield "{{ " + a + " }}|{{ not " + a + " }}{{ [" + a + "] }}"
        for f in filter(lambda f: keep(a + f), FILTERS):
            yield "{{ " + a + "|" + f + " }}"
        for t in filter(lambda t: keep(a + t), TESTS):
            yield "{{ " + a + " is " + t + " }}"
        for m in filter(lambda m: keep(a + m), METHODS):
            yield "{{ " + a + "." + m + " }}"
        for s in filter(lambda s: keep(a + s), SUBSCRIPTS):
            yield "{{ " + a + "[" + s + "] }}"
    yield from SPACE
    yield from STATEMENTS


def setup_of(snippet):
    """Sets the values that a snippet uses: compiling them all takes long."""
    names = set(re.findall(r"\w+", snippet))
    return "".join("{% set " + k + " = " + v + " %}" for k, v in VALUES.items() if v is not None and k in names)


def hash_of(s):
    n = 0
    for c in s.encode():
        n = (n * 31 + c) % 1000003
    return n


class Grammar:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, *options):
        return self.rng.choice(options)

    def expr(self, depth=3):
        r = self.rng
        if depth == 0 or r.random() < 0.15:
            return self.pick(*NAMES, "1", "'a'", "loop.index", "ns.c", "x1", "x2", "2.0", "none", "[]")
        e = lambda: self.expr(depth - 1)
        return self.pick(
            lambda: f"{e()} {r.choice(SMALL)} {e()}", lambda: f"({e()})", lambda: f"{e()}|{r.choice(FILTERS)}", lambda: f"{e()} is {r.choice(['', 'not '])}{r.choice(TESTS)}",
            lambda: f"{r.choice(NAMES)}.{r.choice(METHODS)}", lambda: f"{e()}[{r.choice(SUBSCRIPTS)}]", lambda: f"({e()} if {e()} else {e()})", lambda: f"[{e()}, {e()}]", lambda: "{'a': " + e() + "}",
            lambda: f"not {e()}", lambda: f"f({e()})", lambda: f"{r.choice(NAMES)}",
        )()

    def space(self):
        return self.rng.choice(["", "", "\n", "  ", "\n  ", " x ", "\n\n", "y"])

    def tag(self, body):
        r = self.rng
        return self.space() + "{%" + r.choice(["", "-", "+"] if r.random() < 0.3 else ["", "-"]) + " " + body + " " + r.choice(["", "-"]) + "%}" + self.space()

    def body(self, depth):
        return "".join(self.stmt(depth) for _ in range(self.rng.randint(1, 3)))

    def stmt(self, depth):
        r = self.rng
        if depth == 0 or r.random() < 0.4:
            return self.space() + "{{" + r.choice(["", "-"]) + " " + self.expr() + " " + r.choice(["", "-"]) + "}}" + self.space()
        d = depth - 1
        return self.pick(
            lambda: self.tag("if " + self.expr(2)) + self.body(d) + (self.tag("else") + self.body(d) if r.random() < 0.5 else "") + self.tag("endif"),
            lambda: self.tag("for x1 in " + self.pick("nums", "l", "d", "ms", "s", "range(2)", self.expr(1)) + self.pick("", "", " if x1")) + self.body(d) + self.pick("", self.tag("break"), self.tag("else") + "E") + self.tag("endfor"),
            lambda: self.tag("set x2 = " + self.expr(2)), lambda: self.tag("set ns.c = " + self.expr(2)), lambda: self.tag("set x2") + self.body(d) + self.tag("endset"),
            lambda: self.tag("macro f(a, b=1)") + self.body(d) + "{{ a }}" + self.tag("endmacro"), lambda: "{#" + r.choice(["", "-"]) + " c " + r.choice(["", "-"]) + "#}" + self.space(),
            lambda: self.tag("filter upper") + self.body(d) + self.tag("endfilter"),
        )()

    def template(self):
        return "{% set ns = namespace(c=0) %}{% macro f(a) %}<{{ a }}>{% endmacro %}" + self.body(3)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    env = environment()
    grammar = Grammar(rng)
    snippets = itertools.chain(fixed(3 if count <= 500 else 1), (grammar.template() for _ in range(count)))
    kept = 0
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for s in snippets:
            s = setup_of(s) + s
            if "lipsum" in s:  # random text
                continue
            try:
                text = env.from_string(s).render()
            except Exception:
                text = None
            if text is not None and (" at 0x" in text or len(text) > 2000):
                continue
            out.write(json.dumps([s, text], ensure_ascii=False, separators=(",", ":")) + "\n")
            kept += 1
    print(kept, "snippets", file=sys.stderr)


if __name__ == "__main__":
    main()
