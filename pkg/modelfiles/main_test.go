package modelfiles

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is a token; no error may hold it.
const secret = "hf_sesame"

// sample are the files of a small model.
func sample() map[string]string {
	return map[string]string{
		nameTokenizer:        `{"version":"1.0"}`,
		nameConfig:           `{"chat_template":"x"}`,
		nameTemplate:         `{{ messages }}`,
		nameGenerationConfig: `{"eos_token_id":1}`,
		nameModelConfig:      `{"model_type":"m"}`,
	}
}

// contents are the files in f, by name.
func contents(f *Files) map[string]string {
	all := map[string]string{}
	for _, one := range f.list() {
		all[one.name] = string(one.data)
	}
	return all
}

func wantFiles(t *testing.T, f *Files, err error, want map[string]string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, contents(f)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// wantError checks the code of an error, and that its text has these parts and no
// secret.
func wantError(t *testing.T, err error, code Code, parts ...string) {
	t.Helper()
	if CodeOf(err) != code {
		t.Fatalf("got error %v (%q), want code %q", err, CodeOf(err), code)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("error %q holds the token", err)
	}
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// without returns a copy that lacks some files.
func without(files map[string]string, names ...string) map[string]string {
	rest := maps.Clone(files)
	maps.DeleteFunc(rest, func(name, _ string) bool { return slices.Contains(names, name) })
	return rest
}

// with returns a copy that has one more.
func with(files map[string]string, name, content string) map[string]string {
	more := maps.Clone(files)
	more[name] = content
	return more
}

// clock counts the pauses that were asked for and makes none.
type clock struct{ pauses []time.Duration }

// quickNet is a Net that waits for nothing.
func quickNet(c *clock) Net {
	return Net{
		Wait: func(ctx context.Context, d time.Duration) error {
			c.pauses = append(c.pauses, d)
			return ctx.Err()
		},
		Chance: func() float64 { return 0 },
		Now:    func() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) },
	}
}

func TestTemplateSource(t *testing.T) {
	for _, tc := range []struct{ name, template, want string }{
		{"", "", ""},
		{nameTemplate, "{{ x }}", "{{ x }}"},
		{"custom.jinja", `{"chat_template":"a"}`, `{"chat_template":"a"}`},
		{nameTemplateJSON, `{"chat_template":"a\nb"}`, "a\nb"},
		{nameTemplateJSON, `{"chat_template":""}`, ""},
		{nameTemplateJSON, `{"chat_template":{"rag":"r","default":"d"}}`, "d"},
		{nameTemplateJSON, `{"chat_template":[{"name":"rag","template":"r"},{"name":"default","template":"d"}]}`, "d"},
	} {
		f := &Files{Template: []byte(tc.template), TemplateName: tc.name}
		if got, err := f.TemplateSource(); err != nil || got != tc.want {
			t.Errorf("%s %s: %q, %v", tc.name, tc.template, got, err)
		}
	}
	for _, bad := range []string{
		`{`, `[]`, `{}`, `{"chat_template":null}`, `{"chat_template":1}`, `{"chat_template":{"rag":"r"}}`,
		`{"chat_template":[{"name":"rag","template":"r"}]}`, `{"chat_template":[{"name":"default"}]}`, `{"chat_template":{"default":1}}`,
	} {
		f := &Files{Template: []byte(bad), TemplateName: nameTemplateJSON, Source: "s"}
		_, err := f.TemplateSource()
		wantError(t, err, BadContent, nameTemplateJSON, nameTemplate)
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("cause")
	err := &Error{Code: Unavailable, Source: "hub x", File: "f", Msg: "is gone", Fix: "wait", Err: cause}
	if got, want := err.Error(), "model files of hub x: f: is gone: cause (wait)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, cause) || CodeOf(err) != Unavailable || CodeOf(cause) != "" || CodeOf(nil) != "" {
		t.Error("the error does not unwrap, or has no code")
	}
}

func TestChecksums(t *testing.T) {
	// "git hash-object" of "hello\n", sha1sum and sha256sum of the same.
	data := []byte("hello\n")
	const git, plain = "ce013625030ba8dba906f756967f9e9ca394464a", "f572d396fae9206628714fb2ce00f72e94f2258f"
	const long = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	for _, etag := range []string{`"` + git + `"`, `W/"` + git + `"`, git, ` "` + strings.ToUpper(git) + `" `, `"` + plain + `"`, `"` + long + `"`} {
		sum := checksumOf(etag)
		if sum == "" {
			t.Errorf("%s is no checksum", etag)
		}
		if err := sum.check(data); err != nil {
			t.Errorf("%s: %v", etag, err)
		}
		wantError(t, sum.check([]byte("hello")), BadChecksum)
	}
	for _, etag := range []string{"", `"5d41402abc4b2a76b9719d911017c592"`, `"` + long + `-2"`, `"` + git[:39] + `g"`} {
		if sum := checksumOf(etag); sum != "" || sum.check(data) != nil {
			t.Errorf("%s gives checksum %q", etag, sum)
		}
	}
}
