// Package cachedir says where tests and tools keep what they download.
package cachedir

import (
	"os"
	"path/filepath"
)

// Path returns $WARMPATH_CACHE when it is set, else a folder warmpath in the
// user's cache folder. It need not exist.
func Path() string {
	if dir := os.Getenv("WARMPATH_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil { // no home: still a folder that a second run finds again
		dir = os.TempDir()
	}
	return filepath.Join(dir, "warmpath")
}
