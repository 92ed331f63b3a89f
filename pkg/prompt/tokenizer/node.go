package tokenizer

import (
	"fmt"
	"strconv"
)

// node is a value of a file, with where it came from. The parts of a file that
// are small are read into nodes; the vocabulary and the merges are not.
type node struct {
	path       string
	kind       byte
	start, end int
	text       string // of a string or a number
	fields     []field
	items      []node
}

type field struct {
	key   string
	value node
}

// maxFields is how many fields an object may have that is read into a node. They
// are searched one by one; files in use have a few dozen.
const maxFields = 1024

// node consumes a value. Fields for which raw is true are skipped: they keep
// only where they are.
func (p *parser) node(path string, depth int, raw func(path string) bool) node {
	p.part = path
	n := node{path: path, kind: p.peek(), start: p.pos}
	switch {
	case depth > maxNesting:
		p.fail(p.pos, "nested deeper than %d levels", maxNesting)
	case raw(path):
		p.skip(depth)
	case n.kind == kindObject:
		p.pos++
		for first := true; p.more(first, '}'); first = false {
			at := p.pos
			key := string(p.appendText(nil, p.str()))
			p.take(':')
			if p.err != nil {
				return n
			}
			switch {
			case len(n.fields) == maxFields:
				p.fail(at, "an object with more than %d fields", maxFields)
			case n.get(key) != nil:
				p.fail(at, "the field %s is given twice", strconv.Quote(key))
			}
			if p.err != nil {
				return n
			}
			n.fields = append(n.fields, field{key, p.node(join(path, key), depth+1, raw)})
			p.part = path
		}
	case n.kind == kindList:
		p.pos++
		for first := true; p.more(first, ']'); first = false {
			if p.err != nil {
				return n
			}
			n.items = append(n.items, p.node(path+"["+strconv.Itoa(len(n.items))+"]", depth+1, raw))
			p.part = path
		}
	case n.kind == kindString:
		n.text = string(p.appendText(nil, p.str()))
	case n.kind == kindNumber:
		n.text = string(p.number())
	default:
		p.skip(depth)
	}
	n.end = p.pos
	return n
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// get returns a field, nil for none.
func (n *node) get(key string) *node {
	for i := range n.fields {
		if n.fields[i].key == key {
			return &n.fields[i].value
		}
	}
	return nil
}

// reader takes nodes apart. The first error stays.
type reader struct {
	data []byte
	err  *LoadError
}

func (r *reader) fail(n *node, format string, args ...any) {
	if r.err == nil {
		r.err = loadError(r.data, n.path, n.start, format, args...)
	}
}

// absent reports that a value is missing or null.
func absent(n *node) bool { return n == nil || n.kind == kindNull }

// only refuses every field but the named ones: one that is not known may change
// what the part does.
func (r *reader) only(n *node, keys ...string) {
next:
	for i := range n.fields {
		for _, key := range keys {
			if n.fields[i].key == key {
				continue next
			}
		}
		r.fail(&n.fields[i].value, "the field is not known")
	}
}

// typ returns the type of a part, which must be an object with one.
func (r *reader) typ(n *node) string {
	if n.kind != kindObject {
		r.fail(n, "an object should be here")
		return ""
	}
	t := n.get("type")
	if t == nil {
		r.fail(n, "the part has no type")
		return ""
	}
	return r.text(n, "type")
}

// need returns a field of a kind, which must be there.
func (r *reader) need(n *node, key string, kind byte, what string) *node {
	v := n.get(key)
	if v == nil {
		r.fail(n, "the field %s is missing", key)
		return &node{}
	}
	if v.kind != kind {
		r.fail(v, "%s should be here", what)
		return &node{}
	}
	return v
}

func (r *reader) text(n *node, key string) string {
	return r.need(n, key, kindString, "a string").text
}

func (r *reader) list(n *node, key string) []node {
	return r.need(n, key, kindList, "a list").items
}

// flag returns a field that is true or false, and otherwise when it is absent
// or null.
func (r *reader) flag(n *node, key string, otherwise bool) bool {
	v := n.get(key)
	if absent(v) {
		return otherwise
	}
	if v.kind != kindTrue && v.kind != kindFalse {
		r.fail(v, "true or false should be here")
	}
	return v.kind == kindTrue
}

// mustFlag is flag for a field that must be there.
func (r *reader) mustFlag(n *node, key string) bool {
	if n.get(key) == nil {
		r.fail(n, "the field %s is missing", key)
	}
	return r.flag(n, key, false)
}

func (r *reader) id(n *node, key string) uint32 {
	v := r.need(n, key, kindNumber, "a number")
	id, err := parseID([]byte(v.text))
	if err != nil {
		r.fail(v, "a token id is not a whole number below 2^32")
	}
	return id
}

// unsupported refuses a part by its name.
func (r *reader) unsupported(n *node, what, name string) {
	r.fail(n, "%s", fmt.Sprintf("%s %s is not supported", what, strconv.Quote(name)))
}
