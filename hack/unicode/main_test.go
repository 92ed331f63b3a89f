package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestCommittedTable holds the table in use to its source.
func TestCommittedTable(t *testing.T) {
	want, err := generate(classesText)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../pkg/prompt/tokenizer/internal/pretok/table.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("table.go is not what hack/unicode writes: run go run ./hack/unicode")
	}
}

func TestGenerateRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"0041-005A upper\n005B-0060 nonsense": "classes.txt:2: unknown class",
		"0041-110000 upper":                   "classes.txt:1: no span",
		"005A-0041 upper":                     "classes.txt:1: no span",
		"zz-0041 upper":                       "classes.txt:1: strconv",
		"0041 upper":                          "classes.txt:1: strconv",
	} {
		if _, err := generate(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
