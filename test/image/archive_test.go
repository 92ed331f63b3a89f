package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The parts of OCI's formats that the tests look at. They are read with the
// standard library, since the library that wrote them would agree with itself.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int64             `json:"size"`
		Annotations map[string]string `json:"annotations"`
		Platform    struct {
			OS           string `json:"os"`
			Architecture string `json:"architecture"`
		} `json:"platform"`
	}
	index struct {
		MediaType   string            `json:"mediaType"`
		Manifests   []descriptor      `json:"manifests"`
		Annotations map[string]string `json:"annotations"`
	}
	manifest struct {
		MediaType   string            `json:"mediaType"`
		Config      descriptor        `json:"config"`
		Layers      []descriptor      `json:"layers"`
		Annotations map[string]string `json:"annotations"`
	}
	imageConfig struct {
		Created      string `json:"created"`
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		Config       struct {
			User         string
			Env          []string
			Entrypoint   []string
			Cmd          []string
			ExposedPorts map[string]struct{}
			Labels       map[string]string
		} `json:"config"`
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
)

// entry is a file or folder of a tar.
type entry struct {
	header  *tar.Header
	content []byte
}

func readTar(t *testing.T, in io.Reader) map[string]entry {
	t.Helper()
	entries := map[string]entry{}
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := entries[header.Name]; twice {
			t.Errorf("%s is there twice", header.Name)
		}
		entries[header.Name] = entry{header, content}
	}
}

// archive is an OCI layout in a tar.
type archive struct {
	files map[string]entry
	read  map[string]bool // digests of the blobs that something refers to
}

func openArchive(t *testing.T, path string) *archive {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return &archive{files: readTar(t, bytes.NewReader(data)), read: map[string]bool{}}
}

// blob returns what a descriptor refers to, after checking its digest and size.
func (a *archive) blob(t *testing.T, d descriptor) []byte {
	t.Helper()
	hash, ok := strings.CutPrefix(d.Digest, "sha256:")
	if !ok {
		t.Fatalf("digest %q", d.Digest)
	}
	content := a.files["blobs/sha256/"+hash].content
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != hash || int64(len(content)) != d.Size {
		t.Fatalf("blob %s has %d bytes with hash %x; its descriptor says %d", hash, len(content), sum, d.Size)
	}
	a.read[hash] = true
	return content
}

func (a *archive) decode(t *testing.T, d descriptor, into any) {
	t.Helper()
	if err := json.Unmarshal(a.blob(t, d), into); err != nil {
		t.Fatal(err)
	}
}

// top returns the layout's one entry, and the index behind it.
func (a *archive) top(t *testing.T) (descriptor, index) {
	t.Helper()
	var outer, inner index
	if err := json.Unmarshal(a.files["index.json"].content, &outer); err != nil {
		t.Fatal(err)
	}
	if len(outer.Manifests) != 1 {
		t.Fatalf("index.json has %d entries, want 1", len(outer.Manifests))
	}
	a.decode(t, outer.Manifests[0], &inner)
	return outer.Manifests[0], inner
}

// image is one platform's image.
type image struct {
	manifest manifest
	config   imageConfig
	files    map[string]entry // all layers together
}

func (a *archive) image(t *testing.T, d descriptor) image {
	t.Helper()
	img := image{files: map[string]entry{}}
	a.decode(t, d, &img.manifest)
	a.decode(t, img.manifest.Config, &img.config)
	if len(img.config.RootFS.DiffIDs) != len(img.manifest.Layers) {
		t.Fatalf("%d layers, %d diff ids", len(img.manifest.Layers), len(img.config.RootFS.DiffIDs))
	}
	for i, layer := range img.manifest.Layers {
		zipped, err := gzip.NewReader(bytes.NewReader(a.blob(t, layer)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(zipped)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(plain); img.config.RootFS.DiffIDs[i] != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("layer %d has not the diff id that the configuration says", i)
		}
		maps.Copy(img.files, readTar(t, bytes.NewReader(plain)))
	}
	return img
}

// picker writes the binary of an image into a folder of the test.
func (img image) picker(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "epp")
	if err := os.WriteFile(path, img.files["epp"].content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
