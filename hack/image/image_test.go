package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = v1.Platform{OS: "linux", Architecture: "arm64"}
)

// dockerBase is an image in Docker's format with a user list of its own.
func dockerBase(t *testing.T, platform v1.Platform) v1.Image {
	t.Helper()
	layer, err := layerOf([]file{
		{name: "etc/passwd", mode: 0o644, content: []byte("theirs\n")},
		{name: "bin/tool-" + platform.Architecture, mode: 0o755, content: []byte("tool")},
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, MediaType: types.DockerLayer})
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config = v1.Config{
		Env: []string{"BASE=yes"}, User: "0", Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c"},
		Labels: map[string]string{"of": "base", "org.opencontainers.image.title": "base"},
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	if mt, err := img.MediaType(); err != nil || mt != types.DockerManifestSchema2 {
		t.Fatalf("the base is %s (%v); this test wants Docker's format", mt, err)
	}
	return img
}

func indexOf(t *testing.T, platforms ...v1.Platform) v1.ImageIndex {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	for _, p := range platforms {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: dockerBase(t, p), Descriptor: v1.Descriptor{Platform: &p},
		})
	}
	return index
}

func someOptions() options {
	return options{name: "warmpath/epp:v1", version: "v1", revision: "abc", created: time.Unix(1e9, 0).UTC()}
}

func binaryFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "epp")
	if err := os.WriteFile(path, []byte("binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func content(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	files := map[string]string{}
	in := mutate.Extract(img)
	defer in.Close()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(data)
	}
}

func server(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestBases(t *testing.T) {
	host := server(t)
	ref, err := name.ParseReference(host + "/base:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, indexOf(t, arm64, amd64)); err != nil {
		t.Fatal(err)
	}
	single, err := name.ParseReference(host + "/single:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(single, dockerBase(t, amd64)); err != nil {
		t.Fatal(err)
	}
	nested := t.TempDir()
	path, err := layout.Write(nested, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendIndex(indexOf(t, arm64, amd64)); err != nil {
		t.Fatal(err)
	}
	unsaid := t.TempDir()
	if path, err = layout.Write(unsaid, empty.Index); err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(dockerBase(t, amd64)); err != nil {
		t.Fatal(err)
	}

	for title, from := range map[string]string{
		"index in a registry": ref.String(), "image in a registry": single.String(),
		"nested layout": nested, "layout that names no platform": unsaid,
	} {
		t.Run(title, func(t *testing.T) {
			testBase(t, from, strings.HasPrefix(from, host))
			if strings.Contains(title, "index") || strings.Contains(title, "nested") {
				return
			}
			if _, err := openBase(t.Context(), from, arm64); err == nil || !strings.Contains(err.Error(), "linux/arm64") {
				t.Errorf("a base without arm64 gives %v", err)
			}
		})
	}
}

func testBase(t *testing.T, from string, named bool) {
	base, err := openBase(t.Context(), from, amd64)
	if err != nil {
		t.Fatal(err)
	}
	img, err := assemble(someOptions(), amd64, base, binaryFile(t))
	if err != nil {
		t.Fatal(err)
	}
	img = written(t, img)
	if err := validate.Image(img); err != nil {
		t.Errorf("not a valid image: %v", err)
	}
	files := content(t, img)
	if files["etc/passwd"] != "theirs\n" || files["bin/tool-amd64"] != "tool" || files["epp"] != "binary" {
		t.Errorf("the image holds %q", files["etc/passwd"]+files["bin/tool-amd64"]+files["epp"])
	}
	if !strings.Contains(files["etc/ssl/certs/ca-certificates.crt"], "BEGIN CERTIFICATE") || files["etc/group"] == "" {
		t.Error("what the base lacks was not added")
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/epp"}) || c.Cmd != nil || !slices.Equal(c.Env, []string{"BASE=yes"}) {
		t.Errorf("config: %+v", c)
	}
	if c.Labels["of"] != "base" || c.Labels["org.opencontainers.image.title"] != "warmpath-epp" ||
		!strings.HasPrefix(c.Labels["org.opencontainers.image.base.digest"], "sha256:") {
		t.Errorf("labels: %v", c.Labels)
	}
	if _, has := c.Labels["org.opencontainers.image.base.name"]; has != named {
		t.Errorf("base.name is %q", c.Labels["org.opencontainers.image.base.name"])
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(manifest.Layers, manifest.Config) {
		if !strings.HasPrefix(string(d.MediaType), "application/vnd.oci.") {
			t.Errorf("%s is no OCI type", d.MediaType)
		}
	}
}

// written is an image as others read it.
func written(t *testing.T, img v1.Image) v1.Image {
	t.Helper()
	path, err := layout.Write(t.TempDir(), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if img, err = path.Image(digest); err != nil {
		t.Fatal(err)
	}
	return img
}

func TestBadBases(t *testing.T) {
	host := server(t)
	empty := t.TempDir()
	for base, want := range map[string]string{
		empty:              "not a folder with an OCI layout",
		host + "/absent:1": "NAME_UNKNOWN",
		"no such/Folder":   "neither a folder nor a reference",
	} {
		if _, err := openBase(t.Context(), base, amd64); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", base, err, want)
		}
	}
}

func someArchive(t *testing.T) string {
	t.Helper()
	o := someOptions()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range []v1.Platform{amd64, arm64} {
		img, err := assemble(o, p, &baseImage{}, binaryFile(t))
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := writeArchive(path, o.name, index, o.created); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPush(t *testing.T) {
	archive := someArchive(t)
	to := server(t) + "/team/epp:v1"
	if err := push(t.Context(), archive, to); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("what arrived is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 || !manifest.Manifests[0].Platform.Equals(amd64) || !manifest.Manifests[1].Platform.Equals(arm64) {
		t.Errorf("arrived: %+v", manifest.Manifests)
	}
}

func TestPushRefusesWhatIsNoArchive(t *testing.T) {
	tarOf := func(name string, kind byte) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Linkname: "/etc"}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	for title, c := range map[string]struct {
		data []byte
		want string
	}{
		"text":       {[]byte(strings.Repeat("no tar ", 200)), "not an OCI archive"},
		"empty":      {tarOf("x", tar.TypeReg), "index.json"},
		"way out":    {tarOf("../../x", tar.TypeReg), "escapes"},
		"a link":     {tarOf("x", tar.TypeSymlink), "neither a file nor a folder"},
		"no content": {nil, "index.json"},
	} {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(path, c.data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := push(t.Context(), path, "localhost:1/x:y"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", title, err, c.want)
		}
	}
}

func TestArchiveNamesTheImage(t *testing.T) {
	dir := t.TempDir()
	if err := unpackArchive(someArchive(t), dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var top v1.IndexManifest
	if err := json.Unmarshal(data, &top); err != nil {
		t.Fatal(err)
	}
	got := top.Manifests[0].Annotations
	if got["org.opencontainers.image.ref.name"] != "v1" || got["io.containerd.image.name"] != "docker.io/warmpath/epp:v1" {
		t.Errorf("annotations: %v", got)
	}
}

func TestArguments(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "soon")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "no command"},
		{[]string{"bild"}, `unknown command "bild"`},
		{[]string{"push"}, "push needs -to"},
		{[]string{"push", "now"}, "takes flags only"},
		{[]string{"build", "-platforms", "windows/amd64"}, "want linux/ARCH"},
		{[]string{"build"}, `SOURCE_DATE_EPOCH is "soon"`},
	} {
		if err := run(t.Context(), c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}
