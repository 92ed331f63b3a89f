package chart

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/test/chart/helm"
)

const root = "../.."

var update = flag.Bool("update", false, "write testdata/golden")

var tools helm.Tools

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard()) // clients of clusters ask for it
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	var err error
	tools, err = helm.Install(ctx, root, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if started != nil {
		if err := started.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// object is an object of the API, and what is in it.
type object = map[string]any

// examples are the values of charts/warmpath/ci, by name.
func examples(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "charts/warmpath/ci/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no example values: %v", err)
	}
	byName := map[string]string{}
	for _, file := range files {
		byName[strings.TrimSuffix(filepath.Base(file), ".yaml")] = file
	}
	return byName
}

// render renders the chart as release llm-router in namespace demo.
func render(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := tools.Template(t.Context(), root, "llm-router", "demo", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objects decodes rendered YAML, strictly: no key may be there twice.
func objects(t *testing.T, rendered []byte) []object {
	t.Helper()
	var all []object
	for doc := range strings.SplitSeq("\n"+string(rendered), "\n---") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if o != nil {
			all = append(all, o)
		}
	}
	return all
}

// at returns what is at a path of an object, nil where there is nothing.
func at(o object, path ...string) any {
	var v any = o
	for _, name := range path {
		m, _ := v.(object)
		v = m[name]
	}
	return v
}

// text is at for a string.
func text(o object, path ...string) string {
	s, _ := at(o, path...).(string)
	return s
}

// id says which object it is.
func id(o object) string { return text(o, "kind") + "/" + text(o, "metadata", "name") }

// ofKind returns the objects of a kind.
func ofKind(all []object, kind string) []object {
	var list []object
	for _, o := range all {
		if text(o, "kind") == kind {
			list = append(list, o)
		}
	}
	return list
}
