package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"
)

// TestBenchIndex runs the index benchmark once: every case is there with figures,
// and its lookups, which it checks, were right.
func TestBenchIndex(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), warmpathBinary, "bench", "index", "-o", "json", "--rounds", "1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var result struct {
		Rows []struct {
			Name          string
			Entries       int
			BlocksPerS    float64 `json:"blocks_per_s"`
			P50           float64 `json:"p50_us"`
			BytesPerEntry float64 `json:"bytes_per_entry"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	seen := map[string]bool{}
	for _, r := range result.Rows {
		seen[r.Name] = true
		if r.Entries == 0 || r.BlocksPerS <= 0 && r.P50 <= 0 && r.BytesPerEntry <= 0 {
			t.Errorf("a row without a figure: %+v", r)
		}
	}
	for _, name := range []string{"apply", "apply-wire", "apply-branchy", "match-128", "match-128-writer", "match-128-branchy", "match-1000", "match-1000-writer", "memory", "memory-branchy", "drop", "hash", "hash-chains"} {
		if !seen[name] {
			t.Errorf("no row %s", name)
		}
	}
}

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
