package telemetry_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/telemetry"
)

func TestNewLogger(t *testing.T) {
	for _, tc := range []struct{ level, format, want string }{
		{"info", "text", "msg=heard"},
		{"debug", "json", `"msg":"heard"`},
	} {
		var out bytes.Buffer
		log, err := telemetry.NewLogger(&out, tc.level, tc.format)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("heard")
		if !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s/%s wrote %q", tc.level, tc.format, out.String())
		}
	}
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "warn", "text")
	if err != nil {
		t.Fatal(err)
	}
	if log.Info("quiet"); out.Len() != 0 {
		t.Errorf("info was written at level warn: %q", out.String())
	}
	if _, err := telemetry.NewLogger(&out, "loud", "text"); err == nil {
		t.Error("an unknown level was accepted")
	}
	if _, err := telemetry.NewLogger(&out, "info", "xml"); err == nil {
		t.Error("an unknown format was accepted")
	}
}

func TestRegistryNamesTheBuild(t *testing.T) {
	families, err := telemetry.NewRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "warmpath_build_info" {
			if v := f.GetMetric()[0].GetLabel()[0].GetValue(); v == "" {
				t.Error("the build has no version")
			}
			return
		}
	}
	t.Error("no warmpath_build_info")
}
