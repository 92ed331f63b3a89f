// Command valuesschema writes the JSON Schema of the chart's values. Names and types
// come from the defaults in values.yaml, so that no value is left out; what a default
// cannot say comes from overrides.yaml; and the schema of the configuration, which
// values hold in config, from config/schema. Unknown names are refused everywhere but
// in maps of free form.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed overrides.yaml
var overridesYAML []byte

type object = map[string]any

func main() {
	values := flag.String("values", "", "values.yaml of the chart")
	config := flag.String("config", "", "JSON Schema of EndpointPickerConfig")
	out := flag.String("out", "", "file to write")
	flag.Parse()
	if err := run(*values, *config, *out); err != nil {
		fmt.Fprintln(os.Stderr, "valuesschema:", err)
		os.Exit(1)
	}
}

func run(valuesFile, configFile, out string) error {
	var values, config, overrides object
	for _, in := range []struct {
		file string
		into *object
	}{{valuesFile, &values}, {configFile, &config}} {
		data, err := os.ReadFile(in.file)
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(data, in.into); err != nil {
			return fmt.Errorf("%s: %w", in.file, err)
		}
	}
	if err := yaml.Unmarshal(overridesYAML, &overrides); err != nil {
		return fmt.Errorf("overrides.yaml: %w", err)
	}
	root, err := schemaOf("", values, overrides)
	if err != nil {
		return err
	}
	if len(overrides) > 0 { // each is taken out when it is used
		return fmt.Errorf("overrides.yaml names values that values.yaml does not have: %v", slices.Sorted(maps.Keys(overrides)))
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Values of the chart warmpath"
	root["$defs"] = config["$defs"]
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(data, '\n'), 0o644)
}

// schemaOf derives the schema of a value from its default.
func schemaOf(path string, value any, overrides object) (object, error) {
	if o, ok := overrides[path].(object); ok {
		delete(overrides, path)
		return o, nil
	}
	switch v := value.(type) {
	case string:
		return object{"type": "string"}, nil
	case bool:
		return object{"type": "boolean"}, nil
	case float64, int64:
		return object{"type": "integer"}, nil
	case object:
		if len(v) == 0 {
			return object{"type": "object"}, nil
		}
		properties := object{}
		for name, def := range v {
			at := name
			if path != "" {
				at = path + "." + name
			}
			s, err := schemaOf(at, def, overrides)
			if err != nil {
				return nil, err
			}
			properties[name] = s
		}
		return object{"type": "object", "additionalProperties": false, "properties": properties}, nil
	}
	return nil, fmt.Errorf("%s: the default %v does not tell its type; add it to overrides.yaml", path, value)
}
