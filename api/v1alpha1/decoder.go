package v1alpha1

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// decoder fills Go values from YAML nodes and remembers where each field was, so
// that later checks can name the line. The types of this package are not
// recursive, so neither is a walk, whatever aliases the file has.
type decoder struct {
	file  string
	lines map[string]int // field path to line
	errs  problems
}

// wrote tells whether the file has a value for the field.
func (d *decoder) wrote(path string) bool { return d.lines[path] > 0 }

func (d *decoder) fail(line int, path, format string, args ...any) {
	d.errs.add(path, format, args...)
	e := d.errs[len(d.errs)-1]
	e.File, e.Line = d.file, line
}

// check adds what validation found, with lines, and returns all problems. A field
// that could not be read is not reported a second time.
func (d *decoder) check(found problems) error {
	unread := d.errs
	for _, e := range found {
		if slices.ContainsFunc(unread, func(u *FieldError) bool { return within(e.Path, u.Path) }) {
			continue
		}
		e.File, e.Line = d.file, d.line(e.Path)
		d.errs = append(d.errs, e)
	}
	return d.errs.join()
}

// line returns the line of a field or, when the file does not have it, of the
// nearest field around it.
func (d *decoder) line(path string) int {
	for path != "" && d.lines[path] == 0 {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return d.lines[path]
}

// decode reads the root mapping into the struct that v points to.
func (d *decoder) decode(root *yamlv3.Node, v any) { d.value(root, reflect.ValueOf(v).Elem(), "") }

// value reads one node into v. On a wrong type it records the error and leaves v.
func (d *decoder) value(n *yamlv3.Node, v reflect.Value, path string) {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if isNull(n) {
		return
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		if o, ok := reflect.TypeAssert[interface{ Default() }](p); ok {
			o.Default() // the object is there now, so its fields have their defaults
		}
		d.value(n, p.Elem(), path)
		v.Set(p)
		return
	}
	if t, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		d.text(n, t, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, v, path)
	case reflect.Map:
		d.strings(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.String:
		if n.Kind != yamlv3.ScalarNode || n.ShortTag() != "!!str" {
			d.fail(n.Line, path, "expected a string, got %s%s", describe(n), quoteHint(n))
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if n.Kind != yamlv3.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(v.Addr().Interface()) != nil {
			d.fail(n.Line, path, "expected true or false, got %s", describe(n))
		}
	case reflect.Int, reflect.Int64:
		if n.Kind != yamlv3.ScalarNode || n.ShortTag() != "!!int" {
			d.fail(n.Line, path, "expected a whole number, got %s", describe(n))
			return
		}
		if n.Decode(v.Addr().Interface()) != nil {
			d.fail(n.Line, path, "%s is out of range", n.Value)
		}
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yamlv3.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" || err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			d.fail(n.Line, path, "expected a number, got %s", describe(n))
			return
		}
		v.SetFloat(f)
	default:
		panic(fmt.Sprintf("field %s has type %s, which the decoder does not know", path, v.Type()))
	}
}

func (d *decoder) text(n *yamlv3.Node, t encoding.TextUnmarshaler, path string) {
	if n.Kind != yamlv3.ScalarNode {
		d.fail(n.Line, path, "expected one value, got %s", describe(n))
		return
	}
	if err := t.UnmarshalText([]byte(n.Value)); err != nil {
		d.fail(n.Line, path, "%s", err)
	}
}

func (d *decoder) object(n *yamlv3.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	d.entries(n, path, func(key, val *yamlv3.Node) {
		p := join(path, key.Value)
		i, ok := fields[key.Value]
		if !ok {
			d.fail(key.Line, p, "unknown field (%s)", suggest(key.Value, slices.Sorted(maps.Keys(fields))))
			return
		}
		if isNull(val) {
			return // as if left out
		}
		d.lines[p] = key.Line
		d.value(val, v.Field(i), p)
	})
}

func (d *decoder) strings(n *yamlv3.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.entries(n, path, func(key, val *yamlv3.Node) {
		p := fmt.Sprintf("%s[%s]", path, key.Value)
		d.lines[p] = key.Line
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(val, elem, p)
		v.SetMapIndex(reflect.ValueOf(key.Value), elem)
	})
}

// entries calls yield for every key of a mapping, once.
func (d *decoder) entries(n *yamlv3.Node, path string, yield func(key, val *yamlv3.Node)) {
	if n.Kind != yamlv3.MappingNode {
		d.fail(n.Line, path, "expected fields, got %s", describe(n))
		return
	}
	first := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if key.Kind != yamlv3.ScalarNode {
			d.fail(key.Line, path, "expected a field name, got %s", describe(key))
			continue
		}
		if line, dup := first[key.Value]; dup {
			d.fail(key.Line, join(path, key.Value), "written twice, first on line %d", line)
			continue
		}
		first[key.Value] = key.Line
		yield(key, val)
	}
}

func (d *decoder) list(n *yamlv3.Node, v reflect.Value, path string) {
	if n.Kind != yamlv3.SequenceNode {
		d.fail(n.Line, path, "expected a list, got %s", describe(n))
		return
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, c := range n.Content {
		p := fmt.Sprintf("%s[%d]", path, i)
		d.lines[p] = c.Line
		d.value(c, s.Index(i), p)
	}
	v.Set(s)
}

// fieldsOf maps the names of a struct's fields in a file to their index.
func fieldsOf(t reflect.Type) map[string]int {
	m := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		m[name] = i
	}
	return m
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func isNull(n *yamlv3.Node) bool { return n.Kind == yamlv3.ScalarNode && n.ShortTag() == "!!null" }

// describe names what a node is, and its text where that is short.
func describe(n *yamlv3.Node) string {
	switch {
	case n.Kind == yamlv3.MappingNode:
		return "fields"
	case n.Kind == yamlv3.SequenceNode:
		return "a list"
	case len(n.Value) > 40:
		return "a longer text"
	case n.ShortTag() == "!!str":
		return fmt.Sprintf("the string %q", n.Value)
	}
	return n.Value
}

func quoteHint(n *yamlv3.Node) string {
	if n.Kind == yamlv3.ScalarNode {
		return "; put it in quotes"
	}
	return ""
}
