package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// options says what is built.
type options struct {
	source, archive, base   string
	name, version, revision string
	platforms               []v1.Platform
	created                 time.Time
}

// build writes the archive, and the binaries beside it.
func build(ctx context.Context, o options) error {
	dir := filepath.Dir(o.archive)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range o.platforms {
		binary := filepath.Join(dir, fmt.Sprintf("epp-%s-%s", platform.OS, platform.Architecture))
		if err := compile(ctx, o, platform, binary); err != nil {
			return err
		}
		base, err := openBase(ctx, o.base, platform)
		if err != nil {
			return err
		}
		img, err := assemble(o, platform, base, binary)
		if err != nil {
			return fmt.Errorf("image for %s: %w", platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &platform},
		})
	}
	index, ok := mutate.Annotations(index, o.labels()).(v1.ImageIndex)
	if !ok {
		return fmt.Errorf("annotations made a %T of an index", index)
	}
	if err := writeArchive(o.archive, o.name, index, o.created); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s@%s\n", o.archive, o.name, digest)
	return nil
}

// compile builds a static binary. The commit is not stamped by the go command:
// the same source gives the same binary, with git or without.
func compile(ctx context.Context, o options, platform v1.Platform, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	ldflags := "-s -w -X github.com/warmpath/warmpath/pkg/telemetry.version=" + o.version
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", out, "./cmd/epp")
	cmd.Dir = o.source
	// GOFLAGS and GOAMD64 of whoever builds would change the binary.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build cmd/epp in %s for %s: %w\n%s", o.source, platform, err, text)
	}
	return nil
}

// labels are the image's OCI labels, which are also annotations of its manifests.
func (o options) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "warmpath-epp",
		"org.opencontainers.image.description": "Endpoint picker that routes LLM requests to the worker whose KV cache holds the prompt",
		"org.opencontainers.image.source":      "https://github.com/warmpath/warmpath",
		"org.opencontainers.image.version":     o.version,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.created":     o.created.Format(time.RFC3339),
	}
	if o.revision != "" {
		labels["org.opencontainers.image.revision"] = o.revision
	}
	return labels
}

func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	for name := range strings.SplitSeq(list, ",") {
		os, arch, ok := strings.Cut(strings.TrimSpace(name), "/")
		if !ok || os != "linux" || arch == "" || strings.Contains(arch, "/") {
			return nil, fmt.Errorf("platform %q: want linux/ARCH, such as linux/amd64", name)
		}
		platforms = append(platforms, v1.Platform{OS: os, Architecture: arch})
	}
	return platforms, nil
}
