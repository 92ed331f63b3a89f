package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const archiveName = "warmpath-epp.oci.tar"

func TestArchive(t *testing.T) {
	a := openArchive(t, filepath.Join(dist, archiveName))
	if got := string(a.files["oci-layout"].content); !strings.Contains(got, `"imageLayoutVersion": "1.0.0"`) {
		t.Errorf("oci-layout: %s", got)
	}
	top, inner := a.top(t)
	if top.MediaType != "application/vnd.oci.image.index.v1+json" || inner.MediaType != top.MediaType {
		t.Errorf("media types: %s, %s", top.MediaType, inner.MediaType)
	}
	if got := top.Annotations; got["org.opencontainers.image.ref.name"] != version || got["io.containerd.image.name"] != imageRef {
		t.Errorf("the archive names the image %v", got)
	}
	checkLabels(t, inner.Annotations)
	var platforms []string
	for _, d := range inner.Manifests {
		platforms = append(platforms, d.Platform.OS+"/"+d.Platform.Architecture)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Fatalf("platforms %v, want %v", platforms, want)
	}
	for i, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		d := inner.Manifests[i]
		t.Run(d.Platform.Architecture, func(t *testing.T) {
			img := a.image(t, d)
			checkConfig(t, d, img)
			checkFiles(t, img)
			checkStatic(t, img.files["epp"].content, machine)
			checkAuthorities(t, img.files["etc/ssl/certs/ca-certificates.crt"].content)
			size := int64(0)
			for _, layer := range img.manifest.Layers {
				size += layer.Size
			}
			t.Logf("%d bytes to pull, %d bytes of picker", size, len(img.files["epp"].content))
			if size > 30<<20 { // 22 MB today, most of it the clients of Kubernetes and a NATS server
				t.Errorf("%d bytes to pull", size)
			}
		})
	}
	for name := range a.files {
		hash, isBlob := strings.CutPrefix(name, "blobs/sha256/")
		if isBlob && hash != "" && !a.read[hash] {
			t.Errorf("nothing refers to %s", name)
		}
	}
}

func checkLabels(t *testing.T, got map[string]string) {
	t.Helper()
	for key, want := range map[string]string{
		"title": "warmpath-epp", "source": "https://github.com/warmpath/warmpath", "version": version,
		"revision": revision, "licenses": "Apache-2.0", "created": sourceTime,
	} {
		if value := got["org.opencontainers.image."+key]; value != want {
			t.Errorf("label %s is %q, want %q", key, value, want)
		}
	}
}

func checkConfig(t *testing.T, d descriptor, img image) {
	t.Helper()
	c := img.config
	if c.OS != d.Platform.OS || c.Architecture != d.Platform.Architecture {
		t.Errorf("the configuration is for %s/%s", c.OS, c.Architecture)
	}
	if c.Created != sourceTime {
		t.Errorf("created %s, want %s", c.Created, sourceTime)
	}
	if c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/epp"}) || len(c.Config.Cmd) != 0 || len(c.Config.Env) != 0 {
		t.Errorf("config: %+v", c.Config)
	}
	if got, want := sortedKeys(c.Config.ExposedPorts), []string{"9002/tcp", "9003/tcp", "9004/tcp", "9090/tcp"}; !slices.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
	checkLabels(t, c.Config.Labels)
	checkLabels(t, img.manifest.Annotations)
}

func checkFiles(t *testing.T, img image) {
	t.Helper()
	want := []string{"epp", "etc/", "etc/group", "etc/passwd", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt"}
	if got := sortedKeys(img.files); !slices.Equal(got, want) {
		t.Fatalf("the image holds %v, want %v", got, want)
	}
	for name, f := range img.files {
		mode := int64(0o755)
		if strings.HasPrefix(name, "etc/") && !strings.HasSuffix(name, "/") {
			mode = 0o644
		}
		if f.header.Mode != mode || f.header.Uid != 0 || f.header.Gid != 0 || f.header.ModTime.Unix() != 0 {
			t.Errorf("%s: mode %o, owner %d:%d, time %s", name, f.header.Mode, f.header.Uid, f.header.Gid, f.header.ModTime)
		}
	}
	if got := string(img.files["etc/passwd"].content); got != "nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n" {
		t.Errorf("etc/passwd: %q", got)
	}
	if got := string(img.files["etc/group"].content); got != "nonroot:x:65532:\n" {
		t.Errorf("etc/group: %q", got)
	}
}

// checkStatic checks that a binary needs neither a loader nor libraries, which the
// image does not have.
func checkStatic(t *testing.T, binary []byte, machine elf.Machine) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != machine || f.Type != elf.ET_EXEC {
		t.Errorf("the picker is %s for %s, want a program for %s", f.Type, f.Machine, machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the picker has a segment %s: it is not static", p.Type)
		}
	}
	if f.Section(".symtab") != nil || f.Section(".debug_info") != nil || f.Section(".zdebug_info") != nil {
		t.Error("the picker is not stripped")
	}
}

func checkAuthorities(t *testing.T, data []byte) {
	t.Helper()
	count := 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatalf("certificate %d: %v", count, err)
		}
		if !cert.IsCA {
			t.Errorf("%s is no authority", cert.Subject)
		}
		count++
	}
	if len(bytes.TrimSpace(data)) != 0 {
		t.Errorf("%d bytes after the last certificate are none", len(data))
	}
	if count < 80 { // Mozilla's list has more than 100
		t.Errorf("only %d authorities", count)
	}
}

func TestPickerRuns(t *testing.T) {
	a := openArchive(t, filepath.Join(dist, archiveName))
	_, inner := a.top(t)
	for _, d := range inner.Manifests {
		if d.Platform.Architecture != runtime.GOARCH {
			continue
		}
		picker := a.image(t, d).picker(t)
		if out := runPicker(t, picker, "--version"); !strings.Contains(out, version) {
			t.Errorf("epp --version says %q, want %s in it", out, version)
		}
		dir := t.TempDir()
		for name, text := range map[string]string{"epp.yaml": sampleConfig, "workers.yaml": sampleWorkers} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out := runPicker(t, picker, "validate", "--config", filepath.Join(dir, "epp.yaml"))
		if !strings.Contains(out, "is valid: 1 prefill, 1 decode, 0 aggregated") {
			t.Errorf("epp validate says %q", out)
		}
		return
	}
	t.Fatalf("the image is not for %s, so the picker in it cannot be run here", runtime.GOARCH)
}

const (
	sampleConfig = `apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
discovery:
  file: {path: workers.yaml}
spec:
  eventPlane:
    nats: {url: "nats://127.0.0.1:4222"}
`
	sampleWorkers = `apiVersion: routing.warmpath.dev/v1alpha1
kind: WorkerList
workers:
- {name: prefill-0, address: 10.0.0.1, ports: [8000], labels: {llm-d.ai/role: prefill}}
- {name: decode-0, address: 10.0.0.2, ports: [8000], labels: {llm-d.ai/role: decode}}
`
)

func runPicker(t *testing.T, picker string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, picker, args...)
	cmd.Env = []string{} // as in the image
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("epp %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestReproducible builds once more, from a copy of the source in another folder
// without git, and compares every byte.
func TestReproducible(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "elsewhere")
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatalf("list the source: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(copied, name)); err != nil {
			t.Fatal(err)
		}
	}
	again := t.TempDir()
	if err := runMake(t.Context(), copied, "image", "DIST="+again, "IMG="+imageRef); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"epp-linux-amd64", "epp-linux-arm64", archiveName} {
		if first, second := sum(t, filepath.Join(dist, name)), sum(t, filepath.Join(again, name)); first != second {
			t.Errorf("%s is %x the first time and %x the second", name, first, second)
		}
	}
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if os.IsNotExist(err) { // deleted, and not committed yet
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

func sum(t *testing.T, path string) [32]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}
