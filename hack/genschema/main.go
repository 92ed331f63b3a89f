// Command genschema writes what people and editors need to know about warmpath's
// files from the Go types in api/v1alpha1: a field reference in Markdown and one
// JSON Schema for each kind.
//
// Types, comments and markers are read from the source; nothing is executed.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// objects are what people write for a cluster. Their schema is in the CRD.
var objects = []string{"RoutingPolicy"}

// kinds are the files that people write, by their Go type.
var kinds = []string{"EndpointPickerConfig", "WorkerList"}

func main() {
	api := flag.String("api", "api/v1alpha1", "folder of the Go types")
	reference := flag.String("reference", "", "Markdown file to write")
	schemas := flag.String("schemas", "", "folder to write the JSON Schemas into")
	flag.Parse()
	if err := run(*api, *reference, *schemas); err != nil {
		fmt.Fprintln(os.Stderr, "genschema:", err)
		os.Exit(1)
	}
}

func run(api, reference, schemas string) error {
	m, err := parse(api)
	if err != nil {
		return err
	}
	if reference != "" {
		text, err := m.reference(append(kinds, objects...))
		if err != nil {
			return err
		}
		if err := write(reference, []byte(text)); err != nil {
			return err
		}
	}
	if schemas == "" {
		return nil
	}
	for _, kind := range kinds {
		data, err := m.schema(kind)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(schemas, strings.ToLower(kind)+".schema.json"), data); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
