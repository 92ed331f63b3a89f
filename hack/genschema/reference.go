package main

import (
	"fmt"
	"go/ast"
	"strings"
)

const referenceIntro = `# Configuration reference

<!-- Written by hack/genschema from api/v1alpha1. Change the comments there and run "make generate". -->

The two files are read strictly: an unknown field, a field written twice, a wrong type or a value out of range is an error that names file, line and field, and all problems are reported at once. ` + "`epp validate --config file`" + ` checks without starting anything.

Durations are a number with a unit: ` + "`500ms`, `30s`, `1h`" + `. A field that is left out or ` + "`null`" + ` has its default.

A RoutingPolicy is an object in a cluster, checked by the API server: ` + "`kubectl explain rp.spec --recursive`" + ` shows the same.
`

// reference returns the field reference of some kinds as Markdown.
func (m *model) reference(kinds []string) (string, error) {
	var b strings.Builder
	b.WriteString(referenceIntro)
	for _, kind := range kinds {
		st, ok := m.structs[kind]
		if !ok {
			return "", fmt.Errorf("no struct type %s", kind)
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| field | type | default | meaning |\n|---|---|---|---|\n", kind, st.doc)
		if err := m.rows(&b, st, ""); err != nil {
			return "", fmt.Errorf("%s: %w", kind, err)
		}
	}
	return b.String(), nil
}

// rows writes one line for each field and, below it, for the fields in it.
func (m *model) rows(b *strings.Builder, st *structType, prefix string) error {
	for _, name := range st.inline {
		fmt.Fprintf(b, "| `%s*` | | | All that `spec` of EndpointPickerConfig holds. |\n", prefix)
		if m.structs[name] == nil {
			return fmt.Errorf("no struct type %s", name)
		}
	}
	for i := range st.fields {
		f := &st.fields[i]
		typ, inner, err := m.typeName(f.typ)
		if err != nil {
			return fmt.Errorf("%s%s: %w", prefix, f.name, err)
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", prefix, f.name, typ, f.defaultText(), cell(m.meaning(f)))
		if inner == nil {
			continue
		}
		below := prefix + f.name + "."
		if _, list := f.typ.(*ast.ArrayType); list {
			below = prefix + f.name + "[]."
		}
		if err := m.rows(b, inner, below); err != nil {
			return err
		}
	}
	return nil
}

// typeName returns the type as people would call it and, for objects and lists of
// objects, the struct.
func (m *model) typeName(t ast.Expr) (string, *structType, error) {
	switch t := t.(type) {
	case *ast.StarExpr:
		return m.typeName(t.X)
	case *ast.ArrayType:
		name, inner, err := m.typeName(t.Elt)
		return "list of " + name + "s", inner, err
	case *ast.SelectorExpr:
		return strings.ToLower(t.Sel.Name), nil, nil
	case *ast.MapType:
		return "map of strings", nil, nil
	case *ast.Ident:
		switch t.Name {
		case "string", "bool":
			return t.Name, nil, nil
		case "int", "int32", "int64", "float64":
			return "number", nil, nil
		case "Duration":
			return "duration", nil, nil
		case "WorkerID", "ByteRate":
			return "string or number", nil, nil
		}
		if _, ok := m.enums[t.Name]; ok {
			return "string", nil, nil
		}
		if st, ok := m.structs[t.Name]; ok {
			return "object", st, nil
		}
		return "", nil, fmt.Errorf("type %s is not known", t.Name)
	}
	return "", nil, fmt.Errorf("type %T is not supported", t)
}

func (f *field) defaultText() string {
	switch {
	case f.def != nil:
		return "`" + string(f.def) + "`"
	case f.required:
		return "required"
	}
	return ""
}

// meaning is the comment with the values and limits that the markers hold.
func (m *model) meaning(f *field) string {
	parts := []string{f.doc}
	if values := m.enum(f); len(values) > 0 {
		var list []string
		for _, v := range values {
			text := "`" + v.value + "`"
			if v.doc != "" {
				text += " (" + v.doc + ")"
			}
			list = append(list, text)
		}
		parts = append(parts, "One of: "+strings.Join(list, ", ")+".")
	}
	if text := limitText(f.limits["Minimum"], f.limits["Maximum"], ""); text != "" {
		parts = append(parts, text)
	}
	if text := limitText(f.limits["MinItems"], f.limits["MaxItems"], " in the list"); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func limitText(least, most, unit string) string {
	switch {
	case least != "" && most != "":
		return fmt.Sprintf("Range: %s to %s%s.", least, most, unit)
	case least != "":
		return fmt.Sprintf("At least %s%s.", least, unit)
	case most != "":
		return fmt.Sprintf("At most %s%s.", most, unit)
	}
	return ""
}

// cell makes a text fit for a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
