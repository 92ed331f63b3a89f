package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"
)

// TestBenchExtProc runs the smallest possible benchmark: its JSON has every
// documented field, and each figure is one that can only come from measuring.
func TestBenchExtProc(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), warmpathBinary, "bench", "extproc", "-o", "json",
		"--bodies", "1024", "--streams", "1,4", "--workers", "2", "--duration", "200ms", "--rounds", "1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var result struct{ Rows []map[string]float64 }
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if len(result.Rows) != 2 {
		t.Fatalf("%d rows, want 2", len(result.Rows))
	}
	for i, row := range result.Rows {
		if row["body_bytes"] != 1024 || row["workers"] != 2 || row["streams"] != []float64{1, 4}[i] {
			t.Errorf("row %d is of another cell: %v", i, row)
		}
		for _, field := range []string{"p50_ms", "p99_ms", "rps", "cpu_us_per_request", "peak_mb", "floor_cpu_us_per_request", "cpu_ratio_to_floor"} {
			if row[field] <= 0 {
				t.Errorf("row %d: %s is %v", i, field, row[field])
			}
		}
	}
}
