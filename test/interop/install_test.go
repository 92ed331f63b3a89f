package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/pypi"
	"github.com/warmpath/warmpath/pkg/fleet"
)

func TestInstallOnce(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		var markers []os.FileInfo
		for range 2 {
			inst, err := Install(t.Context(), version)
			if err != nil {
				t.Fatal(err)
			}
			marker, err := os.Stat(filepath.Join(inst.Dir, pypi.MarkerFile))
			if err != nil {
				t.Fatal(err)
			}
			markers = append(markers, marker)
		}
		if !os.SameFile(markers[0], markers[1]) {
			t.Error("the second call installed again")
		}
	})
}

func TestInstallUnknownVersion(t *testing.T) {
	_, err := Install(t.Context(), "0.0.1")
	if err == nil || !strings.Contains(err.Error(), "0.0.1") || !strings.Contains(err.Error(), Versions[0]) {
		t.Errorf("error %v, want the version asked for and those there are", err)
	}
}

func TestStackConfig(t *testing.T) {
	for name, cfg := range map[string]StackConfig{
		"no workers": {NATSURL: "nats://127.0.0.1:1"},
		"no NATS":    {Roles: map[fleet.Role]int{fleet.Aggregated: 1}},
		"mixed":      {NATSURL: "nats://127.0.0.1:1", Roles: map[fleet.Role]int{fleet.Aggregated: 1, fleet.Decode: 1}},
		"half":       {NATSURL: "nats://127.0.0.1:1", Roles: map[fleet.Role]int{fleet.Prefill: 1}},
	} {
		if _, err := cfg.withDefaults(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
