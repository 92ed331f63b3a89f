package v1alpha1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const inProcessConfig = `apiVersion: routing.warmpath.dev/v1alpha1
kind: EndpointPickerConfig
discovery: {file: {path: workers.yaml}}
spec:
  eventPlane: {disabled: true}
  tokenizer:
    inProcess:
`

func loadInProcess(t *testing.T, dir, more string) (*EndpointPickerConfig, error) {
	t.Helper()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(inProcessConfig+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

// TestInProcessPaths start at the folder of the configuration file.
func TestInProcessPaths(t *testing.T) {
	dir := writeFiles(t, map[string]string{"token": "secret", "t.jinja": "{{ 1 }}"})
	for more, want := range map[string]func(s *InProcessSpec) []string{
		"      chatTemplate: {file: t.jinja}\n      source: {directory: {path: model}}\n": func(s *InProcessSpec) []string {
			return []string{"t.jinja", s.ChatTemplate.File, "model", s.Source.Directory.Path}
		},
		"      source: {huggingFace: {repository: a/b, hub: {tokenFile: token, cacheDir: cache}}}\n": func(s *InProcessSpec) []string {
			h := s.Source.HuggingFace.Hub
			return []string{"token", h.TokenFile, "cache", h.CacheDir}
		},
		"      source: {dynamo: {cardFiles: [c/a, c/b], hub: {tokenFile: token, cacheDir: cache}}}\n": func(s *InProcessSpec) []string {
			d := s.Source.Dynamo
			return []string{"c/a", d.CardFiles[0], "c/b", d.CardFiles[1], "token", d.Hub.TokenFile, "cache", d.Hub.CacheDir}
		},
	} {
		c, err := loadInProcess(t, dir, more)
		if err != nil {
			t.Fatal(err)
		}
		s := &c.Spec.Tokenizer.InProcess
		if !s.Enabled() {
			t.Errorf("%s is not enabled", more)
		}
		for list := want(s); len(list) > 0; list = list[2:] {
			if got := list[1]; got != filepath.Join(dir, list[0]) {
				t.Errorf("%s became %s", list[0], got)
			}
		}
	}
}

// TestInProcessFiles: what is missing is known before anything starts, and no
// secret is shown.
func TestInProcessFiles(t *testing.T) {
	dir := writeFiles(t, map[string]string{"empty": " \n"})
	for more, want := range map[string]string{
		"      chatTemplate: {file: absent}\n":                                                      "config.yaml:8: spec.tokenizer.inProcess.chatTemplate.file: ",
		"      chatTemplate: {file: .}\n":                                                           "is no file",
		"      source: {huggingFace: {repository: a/b, hub: {tokenFile: empty}}}\n":                 "source.huggingFace.hub.tokenFile: " + filepath.Join(dir, "empty") + " is empty",
		"      source: {dynamo: {cardFiles: [absent.json], hub: {tokenFile: absent}}}\n":            "source.dynamo.hub.tokenFile: ",
		"      source: {huggingFace: {repository: a/b, hub: {address: \"https://me:secret@a\"}}}\n": "must not hold a user or a token",
	} {
		_, err := loadInProcess(t, dir, more)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", more, err, want)
		}
	}
}

// TestLoopbackHub: a token may go in the clear to this host alone.
func TestLoopbackHub(t *testing.T) {
	for address, good := range map[string]bool{
		"http://127.0.0.1": true, "http://127.0.0.1:80/base": true, "http://localhost:1": true, "http://[::1]:80/": true, "https://hub": true,
		"http://hub": false, "http://127.0.0.1.evil": false, "http://localhost.evil": false, "http://127.0.0.1@evil": false, "HTTP://hub": false, "HTTP://LOCALHOST": false, "HTTP://127.0.0.1": true,
	} {
		var p problems
		h := HubSpec{Address: address, TokenFile: "token"}
		h.check(&p, "hub")
		if (len(p) == 0) != good {
			t.Errorf("%s: %v, want good %v", address, p.join(), good)
		}
	}
}
