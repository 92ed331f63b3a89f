package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// model is what the source of a package of types says.
type model struct {
	structs map[string]*structType
	enums   map[string][]enumValue // string types, their constants in order
}

type structType struct {
	doc    string
	fields []field
	inline []string // struct types whose fields are fields of this one
}

type field struct {
	name     string // name in the file
	typ      ast.Expr
	doc      string
	required bool
	def      json.RawMessage   // nil: no default
	counts   bool              // def is what a field counts that is left out; it is not filled in
	limits   map[string]string // Minimum, Maximum, MinItems, ... as written
}

type enumValue struct{ value, doc string }

// parse reads the Go files of a folder, tests left out.
func parse(dir string) (*model, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	m := &model{structs: map[string]*structType{}, enums: map[string][]enumValue{}}
	fset := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				if err := m.declaration(g); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	if len(m.structs) == 0 {
		return nil, fmt.Errorf("no struct types in %s", dir)
	}
	return m, nil
}

func (m *model) declaration(g *ast.GenDecl) error {
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if strings.HasSuffix(s.Name.Name, "List") && strings.Contains(g.Doc.Text(), "+kubebuilder:object:root") {
				continue // of objects; nobody writes one
			}
			st, ok := s.Type.(*ast.StructType)
			if !ok || !s.Name.IsExported() {
				continue
			}
			t, err := newStruct(st, g.Doc)
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name.Name, err)
			}
			m.structs[s.Name.Name] = t
		case *ast.ValueSpec:
			typ, ok := s.Type.(*ast.Ident)
			if !ok || g.Tok != token.CONST || len(s.Values) != 1 {
				continue
			}
			lit, ok := s.Values[0].(*ast.BasicLit)
			if !ok {
				continue
			}
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				return err
			}
			m.enums[typ.Name] = append(m.enums[typ.Name], enumValue{value, strings.TrimSpace(s.Comment.Text())})
		}
	}
	return nil
}

// newStruct reads the fields that have a JSON name. Types without any, such as
// errors, are kept empty and never referred to.
func newStruct(st *ast.StructType, doc *ast.CommentGroup) (*structType, error) {
	t := &structType{doc: oneLine(withoutMarkers(doc.Text()))}
	for _, f := range st.Fields.List {
		if f.Tag == nil {
			continue
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if name == "" && len(f.Names) == 0 && strings.Contains(reflect.StructTag(tag).Get("json"), ",inline") {
			if id, ok := f.Type.(*ast.Ident); ok { // else it is Kubernetes' own
				t.inline = append(t.inline, id.Name)
			}
			continue
		}
		if name == "" || name == "-" || len(f.Names) == 0 {
			continue // not part of a file, or an object's metadata
		}
		out := field{name: name, typ: f.Type, limits: map[string]string{}}
		if err := out.comment(f.Names[0].Name, f.Doc.Text()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		t.fields = append(t.fields, out)
	}
	return t, nil
}

// comment takes a field's comment apart into prose and markers.
func (f *field) comment(goName, text string) error {
	var prose []string
	for line := range strings.SplitSeq(text, "\n") {
		marker, isMarker := strings.CutPrefix(strings.TrimSpace(line), "+")
		if !isMarker {
			prose = append(prose, line)
			continue
		}
		key, value, _ := strings.Cut(marker, "=")
		switch limit, isLimit := strings.CutPrefix(key, "kubebuilder:validation:"); {
		case key == "required":
			f.required = true
		case key == "default" || key == "warmpath:default" || key == "warmpath:counts": // only the first is a default of the CRD
			f.counts = key == "warmpath:counts"
			if !json.Valid([]byte(value)) {
				return fmt.Errorf("default %s is not JSON", value)
			}
			f.def = json.RawMessage(value)
		case strings.HasPrefix(limit, "XValidation") || strings.HasPrefix(limit, "items:") || strings.HasPrefix(key, "list"):
			// for controller-gen
		case isLimit:
			f.limits[limit] = strings.Trim(value, "`")
		default:
			return fmt.Errorf("unknown marker +%s", key)
		}
	}
	f.doc = oneLine(strings.Join(prose, " "))
	rest, ok := strings.CutPrefix(f.doc, goName+" ")
	if !ok {
		return fmt.Errorf("the comment must start with %s", goName)
	}
	f.doc = withoutName(f.doc, rest)
	return nil
}

// withoutMarkers drops the lines that are for controller-gen.
func withoutMarkers(text string) string {
	var prose []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "+") {
			prose = append(prose, line)
		}
	}
	return strings.Join(prose, "\n")
}

// withoutName takes the Go name off the start of a comment, since a field has
// another name in the file: "Timeout is the most" becomes "The most". Where the
// name is the noun that the text is about ("Path of the file") it stays.
func withoutName(doc, rest string) string {
	first, after, _ := strings.Cut(rest, " ")
	switch first {
	case "of", "that":
		return doc
	case "is", "are":
		rest = after
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// enum returns the values that a field may have; nil for any.
func (m *model) enum(f *field) []enumValue {
	if list, ok := f.limits["Enum"]; ok {
		var out []enumValue
		for v := range strings.SplitSeq(list, ";") {
			out = append(out, enumValue{value: v})
		}
		return out
	}
	if id, ok := f.typ.(*ast.Ident); ok {
		return slices.Clone(m.enums[id.Name])
	}
	return nil
}
