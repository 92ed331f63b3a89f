package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

const root = "../.."

func load(t *testing.T) *model {
	t.Helper()
	m, err := parse(filepath.Join(root, "api/v1alpha1"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The defaults in the comments are the defaults in the code.
func TestDefaultsAreTrue(t *testing.T) {
	var c v1alpha1.EndpointPickerConfig
	c.Default()
	source := &c.Spec.Tokenizer.InProcess.Source
	source.Directory = &v1alpha1.DirectorySourceSpec{}
	source.HuggingFace = &v1alpha1.HuggingFaceSourceSpec{}
	source.Dynamo = &v1alpha1.DynamoSourceSpec{Hub: &v1alpha1.HubSpec{}}
	c.Discovery.Kubernetes = &v1alpha1.KubernetesDiscovery{}
	c.Server.EmbeddedNATS = &v1alpha1.EmbeddedNATS{}
	c.Server.ExtProcTLS = &v1alpha1.TLSSpec{}
	c.Default()
	l := v1alpha1.WorkerList{Workers: []v1alpha1.WorkerSpec{{}}}
	l.Default()
	m := load(t)
	n := m.compare(t, reflect.ValueOf(c), "") + m.compare(t, reflect.ValueOf(l.Workers[0]), "workers[].")
	if n < 20 {
		t.Errorf("only %d defaults found", n)
	}
}

// compare checks the marker of every field against the value after Default. It
// returns how many markers there were.
func (m *model) compare(t *testing.T, v reflect.Value, path string) int {
	t.Helper()
	n := 0
	for i, f := range m.structs[v.Type().Name()].fields {
		value := v.Field(i)
		_, inner, err := m.typeName(f.typ)
		if err != nil {
			t.Fatal(err)
		}
		if value.Kind() == reflect.Pointer && !value.IsNil() && inner != nil {
			value = value.Elem()
		}
		if inner != nil && value.Kind() == reflect.Struct {
			n += m.compare(t, value, path+f.name+".")
			continue
		}
		if f.def == nil {
			if !f.required && !value.IsZero() && f.name != "dataParallelSize" { // its default depends on ports
				t.Errorf("%s%s has the default %v but no marker", path, f.name, value)
			}
			continue
		}
		n++
		if f.counts {
			if !value.IsZero() {
				t.Errorf("%s%s is filled in with %v, but its marker says that it is not", path, f.name, value)
			}
			continue
		}
		got, err := json.Marshal(value.Interface())
		if err != nil {
			t.Fatal(err)
		}
		if string(got) == "null" {
			got = []byte("[]") // a list that is left out
		}
		if !bytes.Equal(got, f.def) {
			t.Errorf("%s%s: the marker says %s, the code %s", path, f.name, f.def, got)
		}
	}
	return n
}

// The files in the repository are what the program writes now.
func TestWrittenFilesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	if err := run(filepath.Join(root, "api/v1alpha1"), filepath.Join(dir, "config.md"), dir); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{
		"config.md":                        "docs/reference",
		"endpointpickerconfig.schema.json": "config/schema",
		"workerlist.schema.json":           "config/schema",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(filepath.Join(root, in, name))
		if err != nil {
			t.Fatalf("%v; run make generate manifests", err)
		}
		if diff := cmp.Diff(string(have), string(got)); diff != "" {
			t.Errorf("%s/%s is old, run make generate manifests (-have +want):\n%s", in, name, diff)
		}
	}
}

func TestSamplesDecode(t *testing.T) {
	if _, err := v1alpha1.Load(filepath.Join(root, "config/samples/endpointpickerconfig.yaml")); err != nil {
		t.Error(err)
	}
	if _, err := v1alpha1.LoadWorkers(filepath.Join(root, "config/samples/workers.yaml")); err != nil {
		t.Error(err)
	}
}

func TestParseRefuses(t *testing.T) {
	for source, want := range map[string]string{
		"// B is b.\n// +deflt=1\nB int `json:\"b\"`":   "unknown marker +deflt",
		"// B is b.\n// +default=x\nB int `json:\"b\"`": "is not JSON",
		"// Wrong start.\nB int `json:\"b\"`":           "must start with B",
	} {
		dir := t.TempDir()
		text := "package p\n\ntype A struct {\n" + source + "\n}\n"
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := parse(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
	if _, err := parse(t.TempDir()); err == nil {
		t.Error("an empty folder has types")
	}
}
