package skeleton

import "strings"

type tagKind uint8

const (
	tagText tagKind = iota
	tagPrint
	tagBlock
	tagComment
)

// tag is a piece of a template: text, or a tag with its delimiters.
type tag struct {
	kind              tagKind
	open, body, close string
}

func (t tag) all() string { return t.open + t.body + t.close }

// scan cuts a template into pieces, as the library does: a delimiter in a quoted
// text of a tag does not count.
func scan(source string) (tags []tag, ok bool) {
	for source != "" {
		at := strings.IndexByte(source, '{')
		for at >= 0 && (at+1 == len(source) || strings.IndexByte("{%#", source[at+1]) < 0) {
			more := strings.IndexByte(source[at+1:], '{')
			if more < 0 {
				at = -1
			} else {
				at += 1 + more
			}
		}
		if at < 0 {
			return append(tags, tag{body: source}), true
		}
		if at > 0 {
			tags = append(tags, tag{body: source[:at]})
		}
		t, n := scanTag(source[at:])
		if n == 0 {
			return nil, false
		}
		tags = append(tags, t)
		source = source[at+n:]
	}
	return tags, true
}

// scanTag reads the tag that s begins with; n is 0 when it does not end.
func scanTag(s string) (t tag, n int) {
	t.kind = map[byte]tagKind{'{': tagPrint, '%': tagBlock, '#': tagComment}[s[1]]
	closing := map[tagKind]string{tagPrint: "}}", tagBlock: "%}", tagComment: "#}"}[t.kind]
	start := 2
	if strings.HasPrefix(s[2:], "-") {
		start = 3
	}
	t.open = s[:start]
	for i := start; i < len(s); i++ {
		if c := s[i]; t.kind != tagComment && (c == '\'' || c == '"') {
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			continue
		}
		if rest, minus := strings.CutPrefix(s[i:], "-"); strings.HasPrefix(rest, closing) {
			n = i + len(closing)
			if minus {
				n++
			}
			t.body, t.close = s[start:i], s[i:n]
			return t, n
		}
	}
	return tag{}, 0
}

// keyword is the first word of a block tag.
func keyword(body string) string {
	body = strings.TrimSpace(body)
	for i := range len(body) {
		if !isName(body[i]) || isDigit(body[i]) {
			return body[:i]
		}
	}
	return body
}
