package image

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// startRegistry starts a registry on loopback and returns its host and port.
func startRegistry(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "registry")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", filepath.Join(root, "hack", "image"),
		"-o", binary, "github.com/google/go-containerregistry/cmd/registry")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the registry: %v\n%s", err, out)
	}
	cmd := exec.Command(binary, "-port", "0")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(said)
	port := ""
	for port == "" && lines.Scan() {
		if m := regexp.MustCompile(`serving on port (\d+)`).FindStringSubmatch(lines.Text()); m != nil {
			port = m[1]
		}
	}
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, said)
	}()
	if port == "" {
		t.Fatal("the registry does not say where it listens")
	}
	return "localhost:" + port
}

// TestPushAndBase pushes the image to a registry, and builds another one upon it.
func TestPushAndBase(t *testing.T) {
	pushed := startRegistry(t) + "/team/epp:" + version
	if err := runMake(t.Context(), root, "image-push", "DIST="+dist, "IMG="+pushed); err != nil {
		t.Fatal(err)
	}
	top, inner := openArchive(t, filepath.Join(dist, archiveName)).top(t)
	if got := digestInRegistry(t, pushed); got != top.Digest {
		t.Errorf("the registry has %s; the archive holds %s", got, top.Digest)
	}

	again := t.TempDir()
	if err := runMake(t.Context(), root, "image", "DIST="+again, "IMG="+imageRef, "BASE="+pushed, "PLATFORMS=linux/amd64"); err != nil {
		t.Fatal(err)
	}
	a := openArchive(t, filepath.Join(again, archiveName))
	_, upon := a.top(t)
	if len(upon.Manifests) != 1 {
		t.Fatalf("%d images, want the one for amd64", len(upon.Manifests))
	}
	img := a.image(t, upon.Manifests[0])
	checkFiles(t, img)
	labels := img.config.Config.Labels
	if labels["org.opencontainers.image.base.name"] != pushed || labels["org.opencontainers.image.base.digest"] != inner.Manifests[0].Digest {
		t.Errorf("the image says it is based on %s@%s", labels["org.opencontainers.image.base.name"], labels["org.opencontainers.image.base.digest"])
	}
	// The base's two layers and the picker; the base has the other files already.
	if n := len(img.manifest.Layers); n != 3 {
		t.Errorf("%d layers, want 3", n)
	}
}

func digestInRegistry(t *testing.T, image string) string {
	t.Helper()
	host, path, _ := strings.Cut(image, "/")
	repository, tag, _ := strings.Cut(path, ":")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, fmt.Sprintf("http://%s/v2/%s/manifests/%s", host, repository, tag), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.oci.image.index.v1+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", image, resp.Status)
	}
	return resp.Header.Get("Docker-Content-Digest")
}
