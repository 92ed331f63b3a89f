package kube

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every reason of a condition or an event that people may meet is in the page that
// tells what to do about it.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	constant := regexp.MustCompile(`(?m)^\s+(?:reason|event)[A-Z]\w* += "(\w+)"`)
	n := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range constant.FindAllStringSubmatch(string(source), -1) {
			n++
			if !strings.Contains(string(page), "`"+m[1]+"`") {
				t.Errorf("docs/install.md does not name %s, of %s", m[1], name)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d reasons were found", n)
	}
}
