package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"strconv"
)

type object = map[string]any

// schema returns the JSON Schema (draft 2020-12) of a kind.
func (m *model) schema(kind string) ([]byte, error) {
	defs := object{}
	root, err := m.structSchema(kind, defs)
	if err != nil {
		return nil, err
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = kind
	if len(defs) > 0 {
		root["$defs"] = defs
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil { // orders keys by name
		return nil, err
	}
	return b.Bytes(), nil
}

func (m *model) structSchema(name string, defs object) (object, error) {
	st, ok := m.structs[name]
	if !ok {
		return nil, fmt.Errorf("no struct type %s", name)
	}
	props := object{}
	var required []string
	for i := range st.fields {
		f := &st.fields[i]
		s, err := m.fieldSchema(f, defs)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", name, f.name, err)
		}
		props[f.name] = s
		if f.required {
			required = append(required, f.name)
		}
	}
	out := object{"type": "object", "description": st.doc, "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out, nil
}

// limitKeywords are the markers that are a number in a schema, too.
var limitKeywords = map[string]string{
	"Minimum": "minimum", "Maximum": "maximum",
	"MinItems": "minItems", "MaxItems": "maxItems", "MinLength": "minLength", "MaxLength": "maxLength",
	"Pattern": "pattern",
}

func (m *model) fieldSchema(f *field, defs object) (object, error) {
	s, err := m.typeSchema(f.typ, defs)
	if err != nil {
		return nil, err
	}
	s["description"] = f.doc
	if f.def != nil {
		s["default"] = f.def
	}
	var values []string
	for _, v := range m.enum(f) {
		values = append(values, v.value)
	}
	if values != nil {
		s["enum"] = values
	}
	for marker, text := range f.limits {
		if marker == "Enum" {
			continue
		}
		keyword, ok := limitKeywords[marker]
		if !ok {
			return nil, fmt.Errorf("unknown limit %s", marker)
		}
		if keyword == "pattern" {
			s[keyword] = text
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", marker, err)
		}
		s[keyword] = n
	}
	return s, nil
}

func (m *model) typeSchema(t ast.Expr, defs object) (object, error) {
	switch t := t.(type) {
	case *ast.StarExpr:
		return m.typeSchema(t.X, defs)
	case *ast.ArrayType:
		items, err := m.typeSchema(t.Elt, defs)
		return object{"type": "array", "items": items}, err
	case *ast.MapType:
		values, err := m.typeSchema(t.Value, defs)
		return object{"type": "object", "additionalProperties": values}, err
	case *ast.Ident:
		return m.namedSchema(t.Name, defs)
	}
	return nil, fmt.Errorf("type %T is not supported", t)
}

func (m *model) namedSchema(name string, defs object) (object, error) {
	switch name {
	case "string":
		return object{"type": "string"}, nil
	case "bool":
		return object{"type": "boolean"}, nil
	case "float64":
		return object{"type": "number"}, nil
	case "int", "int32", "int64":
		return object{"type": "integer"}, nil
	case "Duration":
		return object{"type": []string{"string", "integer"}, "pattern": `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`, "minimum": 0, "maximum": 0}, nil
	case "ByteRate":
		return object{"type": []string{"string", "number"}, "pattern": `^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$`, "minimum": 0}, nil
	case "WorkerID":
		return object{"type": []string{"string", "integer"}, "pattern": "^[0-9]+$", "minimum": 0}, nil
	}
	if _, ok := m.enums[name]; ok {
		return object{"type": "string"}, nil
	}
	if _, ok := defs[name]; !ok {
		defs[name] = nil // a type may come up again below itself
		s, err := m.structSchema(name, defs)
		if err != nil {
			return nil, err
		}
		defs[name] = s
	}
	return object{"$ref": "#/$defs/" + name}, nil
}
