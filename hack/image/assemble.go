package main

import (
	"fmt"
	"maps"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// assemble puts one platform's image together: the base's layers, the files that
// the picker needs beside itself where the base lacks them, and the picker.
func assemble(o options, platform v1.Platform, base *baseImage, binary string) (v1.Image, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	support, err := supportFiles(base.files)
	if err != nil {
		return nil, err
	}
	adds := base.layers
	for _, part := range []struct {
		files []file
		what  string
	}{
		{support, "CA bundle and user"}, // the same in every version, so a layer of its own
		{[]file{{name: "epp", mode: 0o755, content: content}}, "the picker"},
	} {
		if len(part.files) == 0 {
			continue
		}
		layer, err := layerOf(part.files)
		if err != nil {
			return nil, err
		}
		adds = append(adds, mutate.Addendum{Layer: layer, History: v1.History{
			Created: v1.Time{Time: o.created}, CreatedBy: "hack/image", Comment: part.what,
		}})
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, adds...); err != nil {
		return nil, err
	}
	return configure(o, platform, base, img)
}

// configure says how the image is run.
func configure(o options, platform v1.Platform, base *baseImage, img v1.Image) (v1.Image, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: o.created}
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config = base.config
	config.Config.User = "65532:65532"
	config.Config.Entrypoint, config.Config.Cmd = []string{"/epp"}, nil
	config.Config.ExposedPorts = map[string]struct{}{"9002/tcp": {}, "9003/tcp": {}, "9004/tcp": {}, "9090/tcp": {}}
	labels := o.labels()
	maps.Copy(labels, base.labels)
	config.Config.Labels = maps.Clone(base.config.Labels)
	if config.Config.Labels == nil {
		config.Config.Labels = map[string]string{}
	}
	maps.Copy(config.Config.Labels, labels)
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(img, labels).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("annotations made a %T of an image", annotated)
	}
	return annotated, nil
}
