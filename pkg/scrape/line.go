package scrape

import (
	"bytes"
	"math"
	"strconv"
)

// sample is one line of a page, parsed: a series and its value.
type sample struct {
	labels  [labels][]byte // values, of those that the line has
	value   float64
	time    float64 // its timestamp, below all others where it has none
	scratch []byte  // what values of the page are unescaped into
}

// parse reads what comes after the name of a family: labels, value, timestamp and
// exemplar (Prometheus text format 0.0.4, OpenMetrics 1.0). It says whether the
// line is as it should be.
func (s *sample) parse(line []byte) bool {
	clear(s.labels[:])
	line = skip(line)
	if len(line) > 0 && line[0] == '{' {
		var ok bool
		if line, ok = s.parseLabels(line[1:]); !ok {
			return false
		}
	}
	text, line := word(skip(line))
	var ok bool
	if s.value, ok = number(text); !ok {
		return false
	}
	s.time = math.Inf(-1)
	if line = skip(line); len(line) == 0 || line[0] == '#' {
		return true // what follows # is an exemplar
	}
	text, line = word(line)
	if s.time, ok = number(text); !ok || math.IsNaN(s.time) {
		return false
	}
	line = skip(line)
	return len(line) == 0 || line[0] == '#'
}

// parseLabels reads labels up to the brace that ends them.
func (s *sample) parseLabels(line []byte) (rest []byte, ok bool) {
	for {
		if line = skip(line); len(line) == 0 {
			return nil, false
		}
		if line[0] == '}' {
			return line[1:], true
		}
		equal := bytes.IndexByte(line, '=')
		if equal < 0 {
			return nil, false
		}
		name := bytes.TrimRight(line[:equal], " \t")
		if line = skip(line[equal+1:]); len(line) == 0 || line[0] != '"' {
			return nil, false
		}
		value, after, ok := s.quoted(line[1:])
		if !ok {
			return nil, false
		}
		if l, wanted := labelOf(name); wanted {
			s.labels[l] = value
		}
		if line = skip(after); len(line) > 0 && line[0] == ',' {
			line = line[1:]
		} else if len(line) == 0 || line[0] != '}' {
			return nil, false
		}
	}
}

// quoted returns a value up to its closing quote, without escapes. It is never nil.
func (s *sample) quoted(line []byte) (value, rest []byte, ok bool) {
	end := bytes.IndexByte(line, '"')
	if end < 0 {
		return nil, nil, false
	}
	if bytes.IndexByte(line[:end], '\\') < 0 {
		return line[:end:end], line[end+1:], true
	}
	// What was unescaped before stays where it is when scratch moves.
	start := len(s.scratch)
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '"':
			return s.scratch[start:len(s.scratch):len(s.scratch)], line[i+1:], true
		case '\\':
			if i++; i == len(line) {
				return nil, nil, false
			}
			switch line[i] {
			case '\\', '"':
				s.scratch = append(s.scratch, line[i])
			case 'n':
				s.scratch = append(s.scratch, '\n')
			default:
				return nil, nil, false
			}
		default:
			s.scratch = append(s.scratch, line[i])
		}
	}
	return nil, nil, false
}

// number reads a number as Go does, but for what the format does not have: _ and
// hexadecimal exponents.
func number(text []byte) (float64, bool) {
	if len(text) == 0 || bytes.ContainsAny(text, "_pP") {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(text), 64)
	return v, err == nil
}

// digits reads a whole number below 2^32. Unlike strconv it makes no error of what is
// none, which is the rule for some labels.
func digits(text []byte) (n uint64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = 10*n + uint64(c-'0'); n > math.MaxUint32 {
			return 0, false
		}
	}
	return n, len(text) > 0
}

func skip(line []byte) []byte {
	for len(line) > 0 && blank(line[0]) {
		line = line[1:]
	}
	return line
}

func word(line []byte) (text, rest []byte) {
	for i, c := range line {
		if blank(c) {
			return line[:i], line[i:]
		}
	}
	return line, nil
}
