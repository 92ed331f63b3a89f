package app

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/modelfiles"
)

func TestReadConfig(t *testing.T) {
	c, err := readConfig([]byte(`{"add_bos_token":true,"bos_token":"<s>","eos_token":{"__type":"AddedToken","content":"</s>","lstrip":false},
		"pad_token":null,"unk_token":{"lstrip":true},"model_max_length":1,"chat_template":"{{ 1 }}","split_special_tokens":false}`))
	if err != nil || c.template != "{{ 1 }}" || !maps.Equal(c.tokens, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}) {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		`{}`:                       "",
		`{"chat_template":null}`:   "",
		`{"chat_template":"a\nb"}`: "a\nb",
		`{"chat_template":[{"name":"default","template":"d"}]}`: "d",
	} {
		if c, err := readConfig([]byte(text)); err != nil || c.noTemplate != nil || c.template != want {
			t.Errorf("%s: %q, %v", text, c.template, err)
		}
	}
	if c, err := readConfig(nil); err != nil || c.template != "" || len(c.tokens) != 0 {
		t.Errorf("none: %+v, %v", c, err)
	}
	for text, want := range map[string]string{
		`[]`:                  "not an object",
		`{"chat_template":1}`: "no text",
		`{"chat_template":[{"name":"tool_use","template":"d"}]}`:                                   "no text",
		`{"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"d"}]}`: "set chatTemplate.file",
		`{"split_special_tokens":true}`:                                                            "split_special_tokens",
	} {
		c, err := readConfig([]byte(text))
		if err == nil {
			err = c.noTemplate
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestTemplateOf: the file that is configured comes first, then the model's own
// file, then what is in its configuration.
func TestTemplateOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(file, []byte("file"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := &tokenizerConfig{template: "config"}
	own := &modelfiles.Files{Template: []byte(`{"chat_template":"own"}`), TemplateName: "chat_template.json"}
	for _, tc := range []struct {
		files      *modelfiles.Files
		file, want string
	}{{own, file, "file"}, {own, "", "own"}, {&modelfiles.Files{}, "", "config"}} {
		if got, err := templateOf(tc.files, config, tc.file); err != nil || got != tc.want {
			t.Errorf("%q, %v, want %q", got, err, tc.want)
		}
	}
	if _, err := templateOf(own, config, file+".absent"); err == nil {
		t.Error("a missing file is none")
	}
}
