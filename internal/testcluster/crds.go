package testcluster

import (
	"context"
	"embed"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// CRDs are kinds that can be installed together.
type CRDs string

// The kinds that tests work with.
const (
	InferencePools         CRDs = "InferencePools"         // inference.networking.k8s.io/v1
	OldInferencePools      CRDs = "OldInferencePools"      // inference.networking.x-k8s.io/v1alpha2, as before GIE 1.0
	RoutingPolicies        CRDs = "RoutingPolicies"        // routing.warmpath.dev/v1alpha1
	DynamoWorkerMetadatas  CRDs = "DynamoWorkerMetadatas"  // nvidia.com/v1alpha1
	InferenceObjectives    CRDs = "InferenceObjectives"    // llm-d.ai/v1alpha2
	OldInferenceObjectives CRDs = "OldInferenceObjectives" // inference.networking.x-k8s.io/v1alpha2
	ModelRewrites          CRDs = "ModelRewrites"          // InferenceModelRewrite in llm-d.ai/v1alpha2
	OldModelRewrites       CRDs = "OldModelRewrites"       // the same in inference.networking.x-k8s.io/v1alpha2
	GatewayAPI             CRDs = "GatewayAPI"             // the standard channel
	IstioNetworking        CRDs = "IstioNetworking"        // networking.istio.io: DestinationRule and others
)

// DefaultCRDs are those of a cluster that warmpath was installed in.
var DefaultCRDs = []CRDs{InferencePools, RoutingPolicies}

//go:embed crds/*.yaml
var ownCRDs embed.FS

// InstallCRDs adds kinds, and returns when they are served.
func (c *Cluster) InstallCRDs(t testing.TB, kinds ...CRDs) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.installCRDs(ctx, kinds); err != nil {
		t.Fatal(err)
	}
}

// RemoveCRDs takes kinds away, with all their objects, and returns when they are no
// longer served.
func (c *Cluster) RemoveCRDs(t testing.TB, kinds ...CRDs) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, kind := range kinds {
		list, err := kind.read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, crd := range list {
			if err := c.client.Delete(ctx, crd); client.IgnoreNotFound(err) != nil {
				t.Fatalf("remove the CRD %s: %v", crd.Name, err)
			}
		}
		for _, crd := range list {
			eventually(t, "the CRD "+crd.Name+" is gone", func() bool {
				err := c.client.Get(ctx, client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{})
				return err != nil && client.IgnoreNotFound(err) == nil
			})
		}
	}
}

func (c *Cluster) installCRDs(ctx context.Context, kinds []CRDs) error {
	var list []*apiextensionsv1.CustomResourceDefinition
	for _, kind := range kinds {
		more, err := kind.read(ctx)
		if err != nil {
			return err
		}
		list = append(list, more...)
	}
	// The library's clients live as long as their connections.
	config := rest.CopyConfig(c.config)
	defer closeIdle(config)
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: list, MaxTime: patience})
	return err
}

// read returns the definitions.
func (kind CRDs) read(ctx context.Context) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var module, pattern string
	switch kind {
	case InferencePools:
		module, pattern = "sigs.k8s.io/gateway-api-inference-extension", "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"
	case GatewayAPI:
		module, pattern = "sigs.k8s.io/gateway-api", "config/crd/standard/*.yaml"
	case RoutingPolicies:
		module, pattern = "github.com/warmpath/warmpath", "config/crd/routing.warmpath.dev_*.yaml"
	case IstioNetworking:
		return kind.readIstio(ctx)
	case OldInferencePools, DynamoWorkerMetadatas, InferenceObjectives, OldInferenceObjectives, ModelRewrites, OldModelRewrites:
		return kind.readOwn()
	default:
		return nil, fmt.Errorf("no CRDs %q", kind)
	}
	dir, err := moduleDir(ctx, "", module)
	if err != nil {
		return nil, err
	}
	return readFiles(dir, pattern)
}

// readIstio returns those of Istio's definitions that are about networking.
func (kind CRDs) readIstio(ctx context.Context) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	source, err := assetsModule(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := moduleDir(ctx, source, "istio.io/istio")
	if err != nil {
		return nil, err
	}
	all, err := readFiles(dir, "manifests/charts/base/files/crd-all.gen.yaml")
	return slices.DeleteFunc(all, func(c *apiextensionsv1.CustomResourceDefinition) bool {
		return c.Spec.Group != "networking.istio.io"
	}), err
}

// readFiles returns the definitions in files of a module.
func readFiles(dir, pattern string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil, err
	}
	options := envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		return nil, err
	}
	// The folders also hold other kinds, which are left out.
	if len(options.CRDs) == 0 {
		return nil, fmt.Errorf("no CRDs in %s of %s", pattern, dir)
	}
	return slices.Clip(options.CRDs), nil
}

// readOwn returns a definition that is kept here.
func (kind CRDs) readOwn() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := ownCRDs.ReadFile("crds/" + string(kind) + ".yaml")
	if err != nil {
		return nil, err
	}
	crd := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return []*apiextensionsv1.CustomResourceDefinition{crd}, nil
}
