package v1alpha1

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the .want files of testdata")

// decodeDir decodes a fixture with the function of its folder.
func decodeDir(dir string, data []byte, name string) (any, error) {
	if dir == "workers" {
		return DecodeWorkers(data, name)
	}
	return Decode(data, name)
}

func TestFixtures(t *testing.T) {
	for _, dir := range []string{"config", "workers"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var good, bad int
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			switch name := filepath.Base(file); {
			case strings.HasSuffix(name, ".good.yaml"):
				good++
				t.Run(dir+"/"+name, func(t *testing.T) { testGood(t, dir, data, name) })
			case strings.HasSuffix(name, ".bad.yaml"):
				bad++
				want := strings.TrimSuffix(file, ".yaml") + ".want"
				t.Run(dir+"/"+name, func(t *testing.T) { testBad(t, dir, data, name, want) })
			default:
				t.Errorf("%s is neither .good.yaml nor .bad.yaml", file)
			}
		}
		if good == 0 || bad == 0 {
			t.Errorf("testdata/%s: %d good and %d bad files", dir, good, bad)
		}
	}
}

func testGood(t *testing.T, dir string, data []byte, name string) {
	t.Helper()
	v, err := decodeDir(dir, data, name)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	switch v := v.(type) {
	case *EndpointPickerConfig:
		out, err = Encode(v)
	case *WorkerList:
		out, err = Encode(v)
	}
	if err != nil {
		t.Fatal(err)
	}
	again, err := decodeDir(dir, out, "encoded.yaml")
	if err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if diff := cmp.Diff(v, again); diff != "" {
		t.Errorf("encoded and decoded again (-first +second):\n%s", diff)
	}
}

func testBad(t *testing.T, dir string, data []byte, name, want string) {
	t.Helper()
	v, err := decodeDir(dir, data, name)
	if err == nil {
		t.Fatalf("decoded to %+v, want an error", v)
	}
	got := err.Error() + "\n"
	if *update {
		if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expected, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(expected), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The wants must not outlive their fixtures.
func TestNoStrayWants(t *testing.T) {
	wants, err := filepath.Glob("testdata/*/*.want")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wants {
		if _, err := os.Stat(strings.TrimSuffix(w, ".want") + ".yaml"); err != nil {
			t.Error(err)
		}
	}
}

const minimal = `apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
discovery: {file: {path: workers.yaml}}
spec: {eventPlane: {nats: {url: "nats://127.0.0.1:4222"}}}
`

func TestDecodeFillsDefaults(t *testing.T) {
	got, err := Decode([]byte(minimal), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := &EndpointPickerConfig{}
	want.Discovery.File = &FileDiscovery{Path: "workers.yaml"}
	want.Spec.EventPlane.NATS.URL = "nats://127.0.0.1:4222"
	want.Default()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := want.Validate(); err != nil {
		t.Error(err)
	}
	if got.Spec.BlockSize != 16 || got.Server.MaxBodyBytes != 64<<20 || got.Spec.Handoff.Preset != HandoffDefault {
		t.Errorf("defaults: %+v", got)
	}
}

func TestDecodeKeepsWrittenZeros(t *testing.T) {
	file := strings.TrimSuffix(minimal, "}}\n") + `, speculationTTL: 0s, jetStream: {snapshotInterval: 0s}, warmUp: {timeout: 0s, fromPeers: false}}, roles: {prefill: []}, handoff: {headers: [{name: x-p, value: PrefillEndpoint}]}}`
	got, err := Decode([]byte(file), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	events := &got.Spec.EventPlane
	checkZeros := func(when string) {
		t.Helper()
		for name, d := range map[string]*Duration{"speculationTTL": events.SpeculationTTL, "snapshotInterval": events.JetStream.SnapshotInterval, "warmUp.timeout": events.WarmUp.Timeout} {
			if d == nil || d.Duration != 0 {
				t.Errorf("%s: %s = %v, want 0s", when, name, d)
			}
		}
		if peers := events.WarmUp.FromPeers; peers == nil || *peers {
			t.Errorf("%s: warmUp.fromPeers is not false", when)
		}
	}
	checkZeros("decoded")
	if p := got.Spec.Roles.Prefill; p == nil || len(p) != 0 {
		t.Errorf("roles.prefill = %#v, want an empty list", p)
	}
	if p := got.Spec.Handoff.Preset; p != "" {
		t.Errorf("handoff.preset = %q next to headers", p)
	}
	got.Default() // defaulting twice changes nothing
	checkZeros("defaulted twice")
	if len(got.Spec.Roles.Prefill) != 0 || got.Spec.Handoff.Preset != "" {
		t.Errorf("a second Default changed %+v", got.Spec)
	}
}

func TestNullIsLeftOut(t *testing.T) {
	l, err := DecodeWorkers([]byte(`{apiVersion: routing.warmpath.dev/v1alpha1, kind: WorkerList, workers: [
		{name: a, address: 10.0.0.1, ports: [1, 2], dataParallelSize: null, ready: ~, workerID: null, labels: }]}`), "w")
	if err != nil {
		t.Fatal(err)
	}
	if w := l.Workers[0]; w.DataParallelSize != 2 || !*w.Ready || w.WorkerID != nil || w.Labels != nil {
		t.Errorf("%+v", w)
	}
}

func TestWorkerIDIsExact(t *testing.T) {
	l, err := DecodeWorkers([]byte(`{apiVersion: routing.warmpath.dev/v1alpha1, kind: WorkerList, workers: [
		{name: a, address: 10.0.0.1, ports: [1], workerID: 18446744073709551615},
		{name: b, address: "::ffff:10.0.0.2", ports: [1], workerID: "18446744073709551614"},
		{name: c, address: "fd00::1", ports: [1], workerID: 0}]}`), "w")
	if err != nil {
		t.Fatal(err)
	}
	var ids []WorkerID
	for _, w := range l.Workers {
		ids = append(ids, *w.WorkerID)
	}
	if want := []WorkerID{1<<64 - 1, 1<<64 - 2, 0}; !slices.Equal(ids, want) {
		t.Errorf("ids = %d, want %d", ids, want)
	}
	if a, err := l.Workers[1].IP(); err != nil || a.String() != "10.0.0.2" {
		t.Errorf("IPv4 in IPv6 form = %v, %v", a, err)
	}
}

func TestLoadResolvesPaths(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(minimal), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "workers.yaml"); c.Discovery.File.Path != want {
		t.Errorf("path = %s, want %s", c.Discovery.File.Path, want)
	}
	abs := strings.Replace(minimal, "workers.yaml", "/etc/pool/workers.yaml", 1)
	if err := os.WriteFile(path, []byte(abs), 0o644); err != nil {
		t.Fatal(err)
	}
	if c, err = Load(path); err != nil || c.Discovery.File.Path != "/etc/pool/workers.yaml" {
		t.Errorf("absolute path: %+v, %v", c, err)
	}
	if _, err := Load(filepath.Join(dir, "absent.yaml")); err == nil || !strings.Contains(err.Error(), "absent.yaml") {
		t.Errorf("absent file: %v", err)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"blockSzie", "blockSize", 2}, {"same", "same", 0}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// Whatever the bytes, decoding ends with a value that passes Validate or an
// error, never a panic.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := Decode(data, "f"); err == nil {
			if err := c.Validate(); err != nil {
				t.Error(err)
			}
		} else if err.Error() == "" {
			t.Error("empty error")
		}
		if l, err := DecodeWorkers(data, "f"); err == nil {
			if err := l.Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}
