package cachedir

import (
	"path/filepath"
	"testing"
)

func TestPath(t *testing.T) {
	t.Setenv("WARMPATH_CACHE", "/somewhere")
	if got := Path(); got != "/somewhere" {
		t.Errorf("got %q", got)
	}
	t.Setenv("WARMPATH_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	t.Setenv("HOME", "/home/x")
	if got := Path(); filepath.Base(got) != "warmpath" || filepath.Dir(got) == "." {
		t.Errorf("got %q", got)
	}
}
