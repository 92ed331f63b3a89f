package image

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// instructions returns the Dockerfile's lines, those that go on joined.
func instructions(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// copied returns the paths that the Dockerfile copies from the repository.
func copied(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, line := range instructions(t) {
		words := strings.Fields(line)
		if words[0] == "COPY" && !strings.HasPrefix(words[1], "--from=") {
			paths = append(paths, words[1:len(words)-1]...)
		}
	}
	if len(paths) < 3 {
		t.Fatalf("the Dockerfile copies only %v", paths)
	}
	return paths
}

// TestDockerfileCopiesEnough builds the picker from what the Dockerfile copies and
// .dockerignore lets through, with the Dockerfile's own command. The picker must be
// that of make image.
func TestDockerfileCopiesEnough(t *testing.T) {
	dir := t.TempDir()
	for _, path := range copied(t) {
		err := filepath.WalkDir(filepath.Join(root, path), func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if entry.Name() == "testdata" { // as .dockerignore says
					return filepath.SkipDir
				}
				return nil
			}
			relative, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			return copyFile(name, filepath.Join(dir, relative))
		})
		if err != nil {
			t.Fatalf("COPY %s: %v", path, err)
		}
	}
	out := filepath.Join(t.TempDir(), "epp")
	var command string
	for _, line := range instructions(t) {
		if strings.HasPrefix(line, "RUN ") && strings.Contains(line, "go build") {
			command = strings.Replace(strings.TrimPrefix(line, "RUN "), " -o /epp ", " -o "+out+" ", 1)
		}
	}
	if !strings.Contains(command, out) {
		t.Fatalf("the Dockerfile does not build /epp: %q", command)
	}
	build := exec.CommandContext(t.Context(), "sh", "-c", command)
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "TARGETOS=linux", "TARGETARCH=amd64", "VERSION="+version)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
	if sum(t, out) != sum(t, filepath.Join(dist, "epp-linux-amd64")) {
		t.Error("the Dockerfile builds another picker than make image")
	}
}

// TestDockerignore checks that what the Dockerfile copies reaches the engine, and
// that the test above leaves out what .dockerignore does.
func TestDockerignore(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"*"}
	for _, path := range copied(t) {
		want = append(want, "!"+path)
	}
	want = append(want, "**/testdata")
	got := strings.Fields(string(data))
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf(".dockerignore has %v; for what the Dockerfile copies it must have %v", got, want)
	}
}

func TestDockerfileRunsAsTheImageDoes(t *testing.T) {
	var last []string // instructions of the last stage
	for _, line := range instructions(t) {
		if strings.HasPrefix(line, "FROM ") {
			last = nil
		}
		last = append(last, line)
	}
	for _, want := range []string{
		"FROM scratch", "USER 65532:65532", "EXPOSE 9002 9003 9004 9090", `ENTRYPOINT ["/epp"]`,
		"COPY --from=build /epp /epp", "COPY --from=build /passwd /etc/passwd", "COPY --from=build /group /etc/group",
		"COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt",
	} {
		if !slices.Contains(last, want) {
			t.Errorf("the last stage has no %q", want)
		}
	}
}
