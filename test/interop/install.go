package interop

import (
	"context"
	"embed"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/warmpath/warmpath/internal/cachedir"
	"github.com/warmpath/warmpath/internal/pypi"
)

// Versions are the Dynamo releases that the tests run, oldest first.
var Versions = []string{"1.2.1", "1.3.1", "1.4.2", "1.5.1", "1.6.1"}

//go:embed requirements-*.txt
var requirements embed.FS

// Installation is a Dynamo release that can be run.
type Installation struct {
	Version string
	Python  string // absolute path of the interpreter
	Dir     string // the folder to import from
}

// Install makes a Dynamo release runnable and says where it is. It downloads
// the packages pinned in requirements-<version>.txt into
// $WARMPATH_CACHE/dynamo-<version> (the user's cache folder when WARMPATH_CACHE
// is not set) and does nothing when they are there already. Several processes
// may call it at once.
func Install(ctx context.Context, version string) (Installation, error) {
	pins, err := requirements.ReadFile("requirements-" + version + ".txt")
	if err != nil {
		return Installation{}, fmt.Errorf("dynamo %s: no pinned requirements; have %s", version, strings.Join(Versions, ", "))
	}
	cache, err := filepath.Abs(cachedir.Path())
	if err != nil {
		return Installation{}, err
	}
	inst := Installation{Version: version, Dir: filepath.Join(cache, "dynamo-"+version)}
	if inst.Python, err = pypi.Install(ctx, inst.Dir, pins); err != nil {
		return Installation{}, fmt.Errorf("install dynamo %s: %w", version, err)
	}
	return inst, nil
}
