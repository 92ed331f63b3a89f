// Package oracle installs the reference tokenizers that ours is compared with,
// and runs the Python scripts beside it, which use them.
package oracle

import (
	"context"
	"crypto/sha256"
	_ "embed" // the pinned packages
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/internal/pypi"
	"github.com/warmpath/warmpath/internal/testmodels"
)

//go:embed requirements.txt
var requirements []byte

// Env is an installation of the oracles.
type Env struct {
	Python string // absolute path of the interpreter
	Dir    string // the folder to import from
	Models string // a folder NAME/tokenizer.json for each of [testmodels.Names]
}

// Install makes the oracles usable and says where they are. It downloads the
// packages pinned in requirements.txt, and the files of the test models, into the
// cache (see cachedir), and does nothing when they are there already. Several
// processes may call it at once.
func Install(ctx context.Context) (Env, error) {
	cache, err := filepath.Abs(cachedir.Path())
	if err != nil {
		return Env{}, err
	}
	files, err := models(ctx, cache)
	if err != nil {
		return Env{}, err
	}
	sum := sha256.Sum256(requirements)
	env := Env{Dir: filepath.Join(cache, "oracle-"+hex.EncodeToString(sum[:6])), Models: files}
	if env.Python, err = pypi.Install(ctx, env.Dir, requirements); err != nil {
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
