package chat

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// goldenNow is the time that hack/templates/golden.py prints.
var goldenNow = time.Date(2026, 3, 5, 14, 7, 9, 0, time.UTC)

// goldenRequest is a request of testdata/requests.json.
type goldenRequest struct {
	Name string          `json:"name"`
	Body json.RawMessage `json:"body"`
}

// goldenTemplate is what the oracle made of the requests with one template.
type goldenTemplate struct {
	Early   bool               `json:"early"` // content as parts, by the rules of vLLM
	Late    bool               `json:"late"`
	Prompts map[string]*string `json:"prompts"` // nil where it refuses
}

func readJSON[T any](t testing.TB, path string) T {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// templatesDir returns the folder of the module that has templates for its tests.
func templatesDir(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/ardanlabs/jinja").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "testdata", "templates")
}

// source returns a template by its name in the golden file, and its tokens.
func source(t testing.TB, name string) (string, map[string]string) {
	t.Helper()
	model, ok := strings.CutPrefix(name, "npm-")
	if !ok {
		data, err := os.ReadFile(filepath.Join(templatesDir(t), name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data), map[string]string{"bos_token": "<BOS>", "eos_token": "<EOS>"}
	}
	config := readJSON[map[string]any](t, filepath.Join(testmodels.Dir(t, model), "tokenizer_config.json"))
	tokens := map[string]string{}
	for key, v := range config {
		if m, ok := v.(map[string]any); ok {
			v = m["content"]
		}
		if text, ok := v.(string); ok && strings.HasSuffix(key, "_token") {
			tokens[key] = text
		}
	}
	text, ok := config["chat_template"].(string)
	if !ok {
		t.Fatalf("%s has no chat template", name)
	}
	return text, tokens
}

// TestPromptsAreThoseOfTheOracle renders the committed requests, or those of the
// folder WARMPATH_GOLDEN.
func TestPromptsAreThoseOfTheOracle(t *testing.T) {
	dir := "testdata"
	if other := os.Getenv("WARMPATH_GOLDEN"); other != "" {
		dir = other
	}
	requests := readJSON[[]goldenRequest](t, filepath.Join(dir, "requests.json"))
	golden := readJSON[map[string]goldenTemplate](t, filepath.Join(dir, "golden.json"))
	for _, name := range slices.Sorted(maps.Keys(golden)) {
		t.Run(name, func(t *testing.T) {
			text, tokens := source(t, name)
			tmpl, err := Compile(text, Options{Tokens: tokens})
			if err != nil {
				t.Fatal(err)
			}
			if g := golden[name]; tmpl.parts != g.Late || tmpl.unsure != (g.Late != g.Early) {
				t.Errorf("content as parts: %v, unsure: %v, want %v or %v", tmpl.parts, tmpl.unsure, g.Late, g.Early)
			}
			for _, r := range requests {
				want := golden[name].Prompts[r.Name]
				got, err := tmpl.Render(prompt.Chat, r.Body, goldenNow)
				switch {
				case want == nil && err == nil:
					t.Errorf("%s: rendered, but the oracle refuses it", r.Name)
				case want != nil && err != nil:
					t.Errorf("%s: %v", r.Name, err)
				case want != nil && got.Text != *want:
					t.Errorf("%s:\n got %q\nwant %q", r.Name, around(got.Text, *want), around(*want, got.Text))
				}
			}
		})
	}
}

// around returns a part of a text near where another begins to differ.
func around(text, other string) string {
	i := 0
	for i < len(text) && i < len(other) && text[i] == other[i] {
		i++
	}
	return text[max(0, i-60):min(len(text), i+100)]
}
