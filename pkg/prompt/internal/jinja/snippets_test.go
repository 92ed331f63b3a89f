package jinja

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"
)

// snippet is a small template with what jinja2 makes of it, nil where it refuses
// it.
type snippet struct {
	source string
	want   *string
}

// readSnippets reads a file of hack/templates/snippets.py.
func readSnippets(t testing.TB, path string) (list []snippet) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var pair [2]*string
		if err := json.Unmarshal(lines.Bytes(), &pair); err != nil {
			t.Fatal(err)
		}
		list = append(list, snippet{*pair[0], pair[1]})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

func renderString(source string) (string, error) {
	tmpl, err := Compile(source)
	if err != nil {
		return "", err
	}
	now := time.Date(2026, 3, 5, 14, 7, 9, 0, time.UTC)
	out, err := tmpl.Render(nil, NewDict(nil), Env{Now: now})
	return string(out), err
}

// TestSnippetsAreThoseOfTheOracle wants the text of jinja2 or a refusal, and
// never a text where jinja2 refuses. Refusals of what jinja2 renders are
// counted: they must stay few.
func TestSnippetsAreThoseOfTheOracle(t *testing.T) {
	path := "testdata/snippets.jsonl"
	if other := os.Getenv("WARMPATH_SNIPPETS"); other != "" {
		path = other
	}
	list := readSnippets(t, path)
	same, refused, reasons := 0, 0, map[string]int{}
	for _, s := range list {
		got, err := renderString(s.source)
		var e *Error
		switch {
		case err != nil && !errors.As(err, &e):
			t.Errorf("%s: an error of another type: %v", s.source, err)
		case s.want == nil && err == nil:
			t.Errorf("%s\n got %q\n jinja2 refuses it", s.source, got)
		case s.want == nil:
			same++
		case err != nil && e.Code == Unsupported:
			refused++
			reasons[e.Msg]++
		case err != nil:
			t.Errorf("%s\n got %v\nwant %q", s.source, err, *s.want)
		case got != *s.want:
			t.Errorf("%s\n got %q\nwant %q", s.source, got, *s.want)
		default:
			same++
		}
	}
	t.Logf("%d as jinja2, %d refused: %v", same, refused, reasons)
	if refused*20 > len(list) {
		t.Errorf("%d of %d snippets are refused", refused, len(list))
	}
}
