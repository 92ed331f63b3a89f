package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// baseImage is what an image starts from; the zero value is nothing at all.
type baseImage struct {
	layers []mutate.Addendum
	config v1.Config
	labels map[string]string // which base this was
	files  map[string]bool   // paths in it, without a slash in front
}

// openBase finds a platform's image in a folder with an OCI layout or in a registry.
func openBase(ctx context.Context, base string, platform v1.Platform) (*baseImage, error) {
	if base == "" {
		return &baseImage{}, nil
	}
	img, err := findBase(ctx, base, platform)
	if err != nil {
		return nil, fmt.Errorf("base %s: %w", base, err)
	}
	b, err := readBase(img)
	if err != nil {
		return nil, fmt.Errorf("base %s: %w", base, err)
	}
	if !isFolder(base) { // a folder's name means nothing elsewhere
		b.labels["org.opencontainers.image.base.name"] = base
	}
	return b, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func findBase(ctx context.Context, base string, platform v1.Platform) (v1.Image, error) {
	if isFolder(base) {
		index, err := layout.ImageIndexFromPath(base)
		if err != nil {
			return nil, fmt.Errorf("not a folder with an OCI layout: %w", err)
		}
		return choose(index, platform)
	}
	ref, err := name.ParseReference(base)
	if err != nil {
		return nil, fmt.Errorf("neither a folder nor a reference to an image: %w", err)
	}
	got, err := remote.Get(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return nil, err
	}
	if got.MediaType.IsIndex() {
		index, err := got.ImageIndex()
		if err != nil {
			return nil, err
		}
		return choose(index, platform)
	}
	img, err := got.Image()
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	if has := config.Platform(); has == nil || !has.Satisfies(platform) {
		return nil, fmt.Errorf("is for %v only, not for %s", has, platform)
	}
	return img, nil
}

// choose finds the image of a platform in an index and the indexes within it.
func choose(index v1.ImageIndex, platform v1.Platform) (v1.Image, error) {
	var has []string
	img, err := search(index, platform, &has)
	if err == nil && img == nil {
		err = fmt.Errorf("has no image for %s, only for: %s", platform, strings.Join(has, ", "))
	}
	return img, err
}

func search(index v1.ImageIndex, platform v1.Platform, has *[]string) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsIndex() {
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			if img, err := search(inner, platform, has); err != nil || img != nil {
				return img, err
			}
			continue
		}
		if !d.MediaType.IsImage() {
			continue
		}
		img, err := index.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		p := d.Platform
		if p == nil { // a layout of one image need not say
			config, err := img.ConfigFile()
			if err != nil {
				return nil, err
			}
			p = config.Platform()
		}
		if p == nil {
			continue
		}
		if p.Satisfies(platform) {
			return img, nil
		}
		*has = append(*has, p.String())
	}
	return nil, nil
}

// readBase takes an image apart. Bases in Docker's format come out in OCI's: the
// layers' bytes are the same in both.
func readBase(img v1.Image) (*baseImage, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	b := &baseImage{
		config: *config.Config.DeepCopy(),
		labels: map[string]string{"org.opencontainers.image.base.digest": digest.String()},
		files:  map[string]bool{},
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		mediaType, err := layer.MediaType()
		if err != nil {
			return nil, err
		}
		if mediaType == types.DockerLayer {
			mediaType = types.OCILayer
		}
		b.layers = append(b.layers, mutate.Addendum{Layer: layer, MediaType: mediaType, History: v1.History{CreatedBy: "base image"}})
	}
	return b, b.list(img)
}

// list notes the paths of the files in an image.
func (b *baseImage) list(img v1.Image) error {
	content := mutate.Extract(img)
	defer content.Close()
	r := tar.NewReader(content)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the layers: %w", err)
		}
		b.files[strings.TrimPrefix(path.Clean("/"+header.Name), "/")] = true
	}
}
