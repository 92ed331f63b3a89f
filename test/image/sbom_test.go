package image

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestSBOM compares what make sbom lists with what the binary itself says it was
// built from, both ways.
func TestSBOM(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			binary := filepath.Join(dist, "epp-linux-"+arch)
			info, err := buildinfo.ReadFile(binary)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"std": info.GoVersion}
			for _, m := range info.Deps {
				if m.Replace != nil {
					m = m.Replace
				}
				want[m.Path] = m.Version
			}
			if len(want) < 20 {
				t.Fatalf("the binary says it was built from %d modules only", len(want))
			}
			bom := readSBOM(t, binary+".cdx.json")
			if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Name != info.Main.Path || bom.Metadata.Component.Version != version {
				t.Errorf("the list is of %+v", bom.Metadata.Component)
			}
			licensed := 0
			for _, c := range bom.Components {
				if v, ok := want[c.Name]; !ok || v != c.Version {
					t.Errorf("the list has %s %s; the binary has %q of it", c.Name, c.Version, v)
				}
				delete(want, c.Name)
				if len(c.Evidence.Licenses) > 0 {
					licensed++
				} else {
					t.Logf("no licence was found for %s", c.Name)
				}
			}
			for path, v := range want {
				t.Errorf("the list lacks %s %s", path, v)
			}
			// A licence is a guess from the text of a file, so one or two may be missing.
			if licensed < len(bom.Components)*9/10 {
				t.Errorf("licences of only %d of %d modules were found", licensed, len(bom.Components))
			}
		})
	}
}

type sbom struct {
	BOMFormat string `json:"bomFormat"`
	Metadata  struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Evidence struct {
		Licenses []json.RawMessage `json:"licenses"`
	} `json:"evidence"`
}

func readSBOM(t *testing.T, path string) sbom {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s sbom
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}
