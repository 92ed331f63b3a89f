package chart

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// foreign are the modules that hold the definitions of kinds of others, which the
// chart makes objects of. Sum is what the Go checksum database says.
var foreign = []struct {
	module, sum, file string
	kinds             []string
}{
	{
		"github.com/envoyproxy/gateway@v1.9.1", "h1:vAVp6/AlBXJ1aOhp1mxL7fNEzVEfjADUguUhm2wzxQY=",
		"charts/gateway-helm/charts/crds/crds/generated/*trafficpolicies.yaml",
		[]string{"BackendTrafficPolicy", "ClientTrafficPolicy"},
	},
	{
		"github.com/prometheus-operator/prometheus-operator@v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
		"example/prometheus-operator-crd/*.yaml",
		[]string{"PodMonitor", "PrometheusRule", "ServiceMonitor"},
	},
	{
		"istio.io/istio@v0.0.0-20260827124520-eed52ebb66ad", "h1:ui9TJjRMAV/hb5ehQaZDq7IUGxuQP6dra9lapT/VjHI=",
		"manifests/charts/base/files/crd-all.gen.yaml",
		[]string{"DestinationRule"},
	},
}

//go:embed testdata/crds/gke.yaml
var gkeCRDs []byte

// foreignCRDs reads the definitions, from the module cache where they are there.
func foreignCRDs(ctx context.Context) (list []*apiextensionsv1.CustomResourceDefinition, err error) {
	for _, f := range foreign {
		dir, err := moduleDir(ctx, f.module, f.sum)
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob(filepath.Join(dir, f.file))
		if err != nil {
			return nil, err
		}
		var found []string
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			all, err := readCRDs(data)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, crd := range all {
				if slices.Contains(f.kinds, crd.Spec.Names.Kind) {
					found = append(found, crd.Spec.Names.Kind)
					list = append(list, crd)
				}
			}
		}
		if len(found) != len(f.kinds) {
			return nil, fmt.Errorf("%s has %q in %s, want %q", f.module, found, f.file, f.kinds)
		}
	}
	gke, err := readCRDs(gkeCRDs)
	return append(list, gke...), err
}

// moduleDir is the folder of a module, which is downloaded where it is missing.
func moduleDir(ctx context.Context, module, sum string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir() // go.mod here does not need it
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, failed := cmd.Output()
	var m struct{ Dir, Sum, Error string }
	if err := json.Unmarshal(out, &m); err != nil || failed != nil || m.Error != "" {
		return "", fmt.Errorf("download %s: %w", module, errors.Join(failed, err, errors.New(m.Error+stderr.String())))
	}
	if m.Sum != sum {
		return "", fmt.Errorf("%s has the checksum %s, want %s", module, m.Sum, sum)
	}
	return m.Dir, nil
}

// readCRDs decodes definitions, with whatever else is between them left out.
func readCRDs(data []byte) (list []*apiextensionsv1.CustomResourceDefinition, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		crd := new(apiextensionsv1.CustomResourceDefinition)
		switch err := decoder.Decode(crd); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		case crd.Kind == "CustomResourceDefinition":
			list = append(list, crd)
		}
	}
}
