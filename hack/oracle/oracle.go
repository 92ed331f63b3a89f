// Package oracle installs the reference tokenizers that ours is compared with,
// and runs the Python scripts beside it, which use them.
package oracle

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the pinned packages
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/warmpath/warmpath/internal/filelock"
	"github.com/warmpath/warmpath/internal/testmodels"
)

//go:embed requirements.txt
var requirements []byte

// markerFile tells in a finished installation what was installed.
const markerFile = "warmpath-installed.txt"

// Env is an installation of the oracles.
type Env struct {
	Python string // absolute path of the interpreter
	Dir    string // the folder to import from
	Models string // a folder NAME/tokenizer.json for each of [testmodels.Names]
}

// Install makes the oracles usable and says where they are. It downloads the
// packages pinned in requirements.txt into a folder of $WARMPATH_CACHE (the user's
// cache folder when WARMPATH_CACHE is not set) and does nothing when they are there
// already. The files of the test models are fetched, too. Several processes may call it at once.
func Install(ctx context.Context) (Env, error) {
	python, tag, err := findPython(ctx)
	if err != nil {
		return Env{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return Env{}, err
	}
	// Compiled packages fit one interpreter version only, so the tag counts.
	marker := append([]byte("# "+tag+"\n"), requirements...)
	sum := sha256.Sum256(marker)
	files, err := models(ctx, cache)
	if err != nil {
		return Env{}, err
	}
	env := Env{Python: python, Dir: filepath.Join(cache, "oracle-"+hex.EncodeToString(sum[:6])), Models: files}

	unlock, err := filelock.Take(ctx, env.Dir+".lock", func() {})
	if err != nil {
		return Env{}, fmt.Errorf("lock %s: %w", env.Dir, err)
	}
	defer unlock()
	if have, err := os.ReadFile(filepath.Join(env.Dir, markerFile)); err == nil && bytes.Equal(have, marker) {
		return env, nil
	}
	if err := install(ctx, env, marker); err != nil {
		return Env{}, fmt.Errorf("install the reference tokenizers: %w", err)
	}
	return env, nil
}

// Command runs a script with the packages in reach, and the models' files: the
// folder of models is in the variable MODELS.
func (e Env) Command(ctx context.Context, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.Python, append([]string{"-B", script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+e.Dir, "MODELS="+e.Models)
	return cmd
}

// models fetches the files of all models and returns the folder that has one of
// each.
func models(ctx context.Context, cache string) (string, error) {
	dir := ""
	for _, name := range testmodels.Names() {
		one, err := testmodels.Fetch(ctx, cache, name, os.Stderr)
		if err != nil {
			return "", err
		}
		dir = filepath.Dir(one)
	}
	return dir, nil
}

// install fills a temporary folder and renames it, so that a folder with the
// final name is always complete.
func install(ctx context.Context, env Env, marker []byte) error {
	tmp, err := os.MkdirTemp(filepath.Dir(env.Dir), filepath.Base(env.Dir)+"-partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, markerFile)
	if err := os.WriteFile(file, marker, 0o644); err != nil {
		return err
	}
	pip := exec.CommandContext(ctx, env.Python, "-m", "pip", "install", "--quiet", "--no-input",
		"--disable-pip-version-check", "--root-user-action", "ignore",
		"--no-deps", "--only-binary", ":all:", "--target", tmp, "--requirement", file)
	if out, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("pip: %w\n%s", err, out)
	}
	if err := os.RemoveAll(env.Dir); err != nil {
		return err
	}
	return os.Rename(tmp, env.Dir)
}

// findPython returns the interpreter behind "python3" (which may be a wrapper
// that needs the user's environment) and the tag of its version.
func findPython(ctx context.Context) (path, tag string, err error) {
	out, err := exec.CommandContext(ctx, "python3", "-c",
		"import sys; print(sys.executable); print(sys.implementation.cache_tag)").Output()
	if err != nil {
		return "", "", fmt.Errorf("run python3 (the reference tokenizers need it, 3.10 or newer, with pip): %w", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 2 {
		return "", "", fmt.Errorf("python3 describes itself as %q, want a path without blanks and a version tag", out)
	}
	return lines[0], lines[1], nil
}

// cacheDir is where downloads go.
func cacheDir() (string, error) {
	dir := os.Getenv("WARMPATH_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a folder for downloads (set WARMPATH_CACHE): %w", err)
		}
		dir = filepath.Join(user, "warmpath")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}
