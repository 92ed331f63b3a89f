package pretok

import (
	"fmt"
	"strconv"
	"strings"
)

// The twin of the scanners: a regex engine of the plainest kind. It reads the
// pattern and backtracks through all that it may match, in order.

// regex is a part of a pattern. It calls then with each end of a match at at,
// the preferred one first, until then is content.
type regex func(text []rune, at int, then func(end int) bool) bool

// twin cuts text as a list of patterns in sequence does.
func twin(patterns []regex, text string) []string {
	if len(patterns) == 0 {
		if text == "" {
			return nil
		}
		return []string{text}
	}
	var all []string
	cut := func(piece []rune) { all = append(all, twin(patterns[1:], string(piece))...) }
	runes := []rune(text)
	gap := 0
	for at := 0; at < len(runes); {
		end := -1
		if !patterns[0](runes, at, func(e int) bool { end = e; return true }) {
			at++
			continue
		}
		if gap < at {
			cut(runes[gap:at])
		}
		cut(runes[at:end])
		at, gap = end, end
	}
	if gap < len(runes) {
		cut(runes[gap:])
	}
	return all
}

// parser reads a pattern. Two engines differ in what {1,3}+ is.
type parser struct {
	rest     string
	tiktoken bool
	anyCase  bool
}

// compile panics on what no known pattern has.
func compile(pattern string, tiktoken bool) regex {
	p := parser{rest: pattern, tiktoken: tiktoken}
	r := p.alternation()
	if p.rest != "" {
		panic("left over: " + p.rest)
	}
	return r
}

func (p *parser) take(s string) bool {
	rest, ok := strings.CutPrefix(p.rest, s)
	p.rest = rest
	return ok
}

func (p *parser) next() rune {
	for i, r := range p.rest {
		if i == 0 {
			p.rest = p.rest[len(string(r)):]
			return r
		}
	}
	panic("pattern ends too soon")
}

func (p *parser) alternation() regex {
	branches := []regex{p.sequence()}
	for p.take("|") {
		branches = append(branches, p.sequence())
	}
	return func(text []rune, at int, then func(int) bool) bool {
		for _, b := range branches {
			if b(text, at, then) {
				return true
			}
		}
		return false
	}
}

func (p *parser) sequence() regex {
	whole := regex(func(_ []rune, at int, then func(int) bool) bool { return then(at) })
	for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		head, tail := whole, p.repeat(p.atom())
		whole = func(text []rune, at int, then func(int) bool) bool {
			return head(text, at, func(end int) bool { return tail(text, end, then) })
		}
	}
	return whole
}

func (p *parser) repeat(r regex) regex {
	least, most, counted := 1, 1, false
	switch {
	case p.take("?"):
		least = 0
	case p.take("*"):
		least, most = 0, -1
	case p.take("+"):
		most = -1
	case p.take("{"):
		counts, rest, _ := strings.Cut(p.rest, "}")
		p.rest = rest
		from, to, ranged := strings.Cut(counts, ",")
		least, _ = strconv.Atoi(from)
		most, counted = least, true
		if ranged {
			most, _ = strconv.Atoi(to)
		}
	default:
		return r
	}
	repeated := times(r, least, most)
	if !p.take("+") {
		return repeated
	}
	if counted && !p.tiktoken {
		return times(repeated, 1, -1)
	}
	return func(text []rune, at int, then func(int) bool) bool { // possessive
		end := -1
		return repeated(text, at, func(e int) bool { end = e; return true }) && then(end)
	}
}

func times(r regex, least, most int) regex {
	var from func(n int) regex
	from = func(n int) regex {
		return func(text []rune, at int, then func(int) bool) bool {
			if n != most && r(text, at, func(end int) bool { return end > at && from(n+1)(text, end, then) }) {
				return true
			}
			return n >= least && then(at)
		}
	}
	return from(0)
}

func (p *parser) atom() regex {
	switch {
	case p.take("(?!"):
		r := p.group()
		return func(text []rune, at int, then func(int) bool) bool {
			return !r(text, at, func(int) bool { return true }) && then(at)
		}
	case p.take("(?i:"):
		before := p.anyCase
		p.anyCase = true
		r := p.group()
		p.anyCase = before
		return r
	case p.take("(?:"):
		return p.group()
	case p.take("$"):
		return func(text []rune, at int, then func(int) bool) bool {
			return (at == len(text) || !p.tiktoken && text[at] == '\n') && then(at)
		}
	}
	in := p.member()
	return func(text []rune, at int, then func(int) bool) bool {
		return at < len(text) && in(text[at]) && then(at+1)
	}
}

func (p *parser) group() regex {
	r := p.alternation()
	if !p.take(")") {
		panic("no )")
	}
	return r
}

// member reads one character, escape or class.
func (p *parser) member() func(rune) bool {
	if p.take("[") {
		return p.class()
	}
	if p.take(`\`) {
		return p.escape()
	}
	want := p.next()
	if p.anyCase {
		return func(r rune) bool { return strings.EqualFold(string(r), string(want)) }
	}
	return func(r rune) bool { return r == want }
}

func (p *parser) class() func(rune) bool {
	inverted := p.take("^")
	var parts []func(rune) bool
	limit := func(rune) bool { return true }
	for !p.take("]") {
		if p.take("&&[") {
			limit = p.class()
			continue
		}
		from := p.rest
		in := p.member()
		if from[0] != '\\' && p.rest[0] == '-' {
			p.next()
			lo, hi := []rune(from)[0], p.next()
			in = func(r rune) bool { return lo <= r && r <= hi }
		}
		parts = append(parts, in)
	}
	return func(r rune) bool {
		found := false
		for _, in := range parts {
			found = found || in(r)
		}
		return (found && limit(r)) != inverted
	}
}

func (p *parser) escape() func(rune) bool {
	switch c := p.next(); c {
	case 'r':
		return func(r rune) bool { return r == '\r' }
	case 'n':
		return func(r rune) bool { return r == '\n' }
	case 's':
		return inClass(space)
	case 'S':
		return func(r rune) bool { return !inClass(space)(r) }
	case 'p':
		name, rest, _ := strings.Cut(p.rest, "}")
		p.rest = rest
		classes := map[string]class{
			"{L": letter, "{N": number, "{M": mark, "{P": punct, "{S": symbol, "{Han": han,
			"{Lu": upper, "{Lt": 0, "{Ll": lower, "{Lm": caseless, "{Lo": 0, // Lt is with Lu, Lo with Lm
		}
		c, ok := classes[name]
		if !ok {
			panic("unknown property " + name)
		}
		return inClass(c)
	default:
		if strings.ContainsRune(`-[\]`, c) {
			return func(r rune) bool { return r == c }
		}
		panic(fmt.Sprintf("unknown escape %c", c))
	}
}

func inClass(c class) func(rune) bool {
	return func(r rune) bool { return kindClasses[kindOf(r)]&c != 0 }
}
