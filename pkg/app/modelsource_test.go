package app

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

// card writes the model card of a worker that serves the files of a folder.
func card(t *testing.T, path, url, dir string) {
	t.Helper()
	file := func(name string) map[string]any {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sum := blake3.Sum256(data)
		return map[string]any{"path": url + "/" + name, "checksum": "blake3:" + hex.EncodeToString(sum[:]), "size": len(data)}
	}
	data, err := json.Marshal(map[string]any{"card_json": map[string]any{
		"display_name":     "m",
		"tokenizer":        map[string]any{"hf_tokenizer_json": file("tokenizer.json")},
		"prompt_formatter": map[string]any{"hf_tokenizer_config_json": file("tokenizer_config.json")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWorkerServesItsFiles: the cards of workers lead to the files, and to a
// model that prompts can be encoded with. A card that is missing, or a worker
// that is gone, leaves it to the others.
func TestWorkerServesItsFiles(t *testing.T) {
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	spec := &v1alpha1.DynamoSourceSpec{CardFiles: []string{filepath.Join(dir, "absent.json"), filepath.Join(dir, "a.json")}}
	source := &cardSource{spec}
	if _, err := source.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "absent.json") || !strings.Contains(err.Error(), "a.json") {
		t.Errorf("without any card: %v", err)
	}
	card(t, spec.CardFiles[1], server.URL, dir)
	files, err := source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !files.Verified {
		t.Error("the files are not verified")
	}
	policy := &v1alpha1.RoutingPolicySpec{}
	policy.Tokenizer.InProcess.Source.Dynamo = spec
	policy.Default()
	b, err := newBuilder(policy, block.Layout{Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.build(files)
	if err != nil || m.noChats != nil || m.gate.Special() {
		t.Errorf("%v, %+v", err, m)
	}
	// Another file than the worker has is refused.
	testmodels.WriteSmall(t, dir, testmodels.ChatML+"!")
	if _, err := source.Fetch(t.Context()); modelfiles.CodeOf(err) == "" {
		t.Errorf("other files: %v", err)
	}
}

// TestDynamoRelease: tools are shown as Dynamo 1.3 and later show them once the
// cards of all workers are of such a release.
func TestDynamoRelease(t *testing.T) {
	dir := t.TempDir()
	testmodels.WriteSmall(t, dir, testmodels.ChatML+"{{ tools }}")
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	spec := &v1alpha1.DynamoSourceSpec{CardFiles: []string{filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")}}
	policy := &v1alpha1.RoutingPolicySpec{}
	policy.Tokenizer.InProcess.Source.Dynamo = spec
	policy.Default()
	b, err := newBuilder(policy, block.Layout{Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]}`)
	for newer := range len(spec.CardFiles) + 1 { // how many of the cards are
		for i, name := range spec.CardFiles {
			card(t, name, server.URL, dir)
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if i < newer {
				data = []byte(strings.Replace(string(data), `"display_name"`, `"worker_type":"aggregated","display_name"`, 1))
			}
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files, err := (&cardSource{spec}).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		template, err := b.compile("{{ tools }}", &tokenizerConfig{}, files.Since13)
		if err != nil {
			t.Fatal(err)
		}
		all := newer == len(spec.CardFiles)
		if _, err = template.Render(prompt.Chat, body, time.Now()); (err == nil) != all || files.Since13 != all {
			t.Errorf("%d of 2 cards are of 1.3: %v, %v", newer, files.Since13, err)
		}
	}
}

// TestBuilderOptions: what is configured is what the template is run with.
func TestBuilderOptions(t *testing.T) {
	yes, no := true, false
	type set func(p *v1alpha1.RoutingPolicySpec, s *v1alpha1.InProcessSpec)
	for _, tc := range []struct {
		name    string
		set     set
		want    chat.Options
		usual   bool
		special parity.Special
	}{
		{"default", func(*v1alpha1.RoutingPolicySpec, *v1alpha1.InProcessSpec) {}, chat.Options{}, true, parity.SpecialAuto},
		{
			"handoff to Dynamo", func(p *v1alpha1.RoutingPolicySpec, _ *v1alpha1.InProcessSpec) {
				p.Handoff.Preset = v1alpha1.HandoffDynamo
			},
			chat.Options{Style: chat.Dynamo, DropTools: true},
			false, parity.SpecialAuto,
		},
		{"vLLM in spite of it", func(p *v1alpha1.RoutingPolicySpec, s *v1alpha1.InProcessSpec) {
			p.Handoff.Preset, s.Engine = v1alpha1.HandoffDynamo, v1alpha1.EngineVLLM
		}, chat.Options{}, true, parity.SpecialAuto},
		{"Dynamo that keeps tools", func(_ *v1alpha1.RoutingPolicySpec, s *v1alpha1.InProcessSpec) {
			s.Engine, s.ChatTemplate.DropTools, s.AddSpecialTokens = v1alpha1.EngineDynamo, &no, v1alpha1.SpecialAlways
		}, chat.Options{Style: chat.Dynamo}, true, parity.SpecialAlways},
		{"Dynamo without 1.2", func(_ *v1alpha1.RoutingPolicySpec, s *v1alpha1.InProcessSpec) {
			s.Engine = v1alpha1.EngineDynamo13
		}, chat.Options{Style: chat.Dynamo, DropTools: true, Since13: true}, false, parity.SpecialAuto},
		{"flags of vLLM", func(_ *v1alpha1.RoutingPolicySpec, s *v1alpha1.InProcessSpec) {
			s.ChatTemplate = v1alpha1.ChatTemplateSpec{Kwargs: `{"a":1}`, ContentFormat: v1alpha1.ContentOpenAI, DropTools: &yes}
			s.AddSpecialTokens = v1alpha1.SpecialNever
		}, chat.Options{Kwargs: []byte(`{"a":1}`), Format: chat.FormatParts, DropTools: true}, false, parity.SpecialNever},
		{
			"strings", func(_ *v1alpha1.RoutingPolicySpec, s *v1alpha1.InProcessSpec) {
				s.ChatTemplate.ContentFormat = v1alpha1.ContentString
			},
			chat.Options{Format: chat.FormatText},
			true, parity.SpecialAuto,
		},
	} {
		policy := &v1alpha1.RoutingPolicySpec{}
		policy.Tokenizer.InProcess.Source.Directory = &v1alpha1.DirectorySourceSpec{Path: "."}
		tc.set(policy, &policy.Tokenizer.InProcess)
		policy.Default()
		p, err := configureInProcess(policy, block.Layout{Size: 4}, &fakeEngines{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := newBuilder(policy, block.Layout{Size: 4})
		if err != nil {
			t.Fatal(err)
		}
		limits := b.options.Limits
		if limits.Output != 16<<20 || limits.Messages != 10_000 || limits.Watch == nil || !limits.Watch()() {
			t.Errorf("%s: limits %+v", tc.name, limits)
		}
		b.options.Limits = chat.Limits{}
		if len(tc.want.Kwargs) == 0 {
			tc.want.Kwargs = []byte{}
		}
		if !reflect.DeepEqual(b.options, tc.want) || b.usual != tc.usual || p.cfg.Special != tc.special {
			t.Errorf("%s: %+v, usual %v, special %v", tc.name, b.options, b.usual, p.cfg.Special)
		}
	}
}

// TestFilesBeside: what is read with the model's files is watched, too.
func TestFilesBeside(t *testing.T) {
	policy := &v1alpha1.RoutingPolicySpec{}
	spec := &policy.Tokenizer.InProcess
	spec.Source.Dynamo = &v1alpha1.DynamoSourceSpec{CardFiles: []string{"a", "b"}}
	spec.ChatTemplate.File = "c"
	policy.Default()
	p, err := configureInProcess(policy, block.Layout{Size: 4}, &fakeEngines{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(p.cfg.Beside, want) || p.cfg.Poll != defaultPoll || p.cfg.Fixed {
		t.Errorf("watched: %q each %v, fixed %v", p.cfg.Beside, p.cfg.Poll, p.cfg.Fixed)
	}
}

// TestLongTexts: the limit holds for texts that no template stops, too.
func TestLongTexts(t *testing.T) {
	policy := &v1alpha1.RoutingPolicySpec{}
	policy.Tokenizer.InProcess.Source.Directory = &v1alpha1.DirectorySourceSpec{Path: t.TempDir()}
	policy.Tokenizer.InProcess.Limits.OutputBytes = 1024
	policy.Default()
	b, err := newBuilder(policy, block.Layout{Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	testmodels.WriteSmall(t, policy.Tokenizer.InProcess.Source.Directory.Path, testmodels.ChatML)
	files, err := (&modelfiles.Directory{Path: policy.Tokenizer.InProcess.Source.Directory.Path}).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.build(files)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{1024: "", 1025: "limit_output"} {
		reason := ""
		body := []byte(`{"model":"m","prompt":"` + strings.Repeat("a", n) + `"}`)
		if err := m.encodeUnscanned(&encoder.Result{}, prompt.Completion, body, false, time.Now()); err != nil {
			reason = reasonOf(err)
		}
		if reason != want {
			t.Errorf("%d bytes: %q, want %q", n, reason, want)
		}
	}
}

// TestTiktoken: a folder as Kimi's, with ranks in the place of a tokenizer.json.
func TestTiktoken(t *testing.T) {
	dir := t.TempDir()
	var ranks strings.Builder
	for i := range 256 {
		fmt.Fprintln(&ranks, base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	for class, want := range map[string]string{
		"TikTokenTokenizer": "",
		"OtherTokenizer":    `tiktoken.model: tokenizer: tokenizer_class: the tokenizer class "OtherTokenizer" is not supported`,
	} {
		for name, text := range map[string]string{
			"tiktoken.model": ranks.String(),
			"tokenizer_config.json": `{"tokenizer_class":"` + class + `","added_tokens_decoder":{"256":{"content":"<|im_end|>"}},` +
				`"chat_template":"{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"}`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tokens, err := LoadTokenizer(t.Context(), dir, "")
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", class, err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := tokens(prompt.Chat, []byte(chatBody("hi", "")))
		if want := []uint32{'h', 'i', 256}; err != nil || !slices.Equal(got, want) {
			t.Errorf("ids %v, %v, want %v", got, err, want)
		}
	}
}

// TestUnsupportedTemplate keeps chats out, and nothing else.
func TestUnsupportedTemplate(t *testing.T) {
	for _, tc := range []struct{ template, reason, says string }{
		{"{% nonsense %}", "unsupported_template", "nonsense"},
		{"", "no_template", "no chat template"},
	} {
		dir := t.TempDir()
		testmodels.WriteSmall(t, dir, tc.template)
		r := start(t, strings.Replace(inProcessSpec(dir, ", policy: \"Off\""), "sampleEvery: 1", "sampleEvery: 0", 1), aggregated)
		r.waitReady(t)
		r.ask(t, completions, `{"model":"m","prompt":"hello there"}`)
		if got := r.metric(t, promptsFrom("in_process")); got != 1 {
			t.Errorf("%v completions in process, want 1", got)
		}
		if r.log.count("chats cannot be rendered in process") != 1 || r.log.count(tc.says) != 1 {
			t.Errorf("log:\n%s", r.log)
		}
		r.ask(t, chatPath, chatBody("hello", ""))
		if got := r.current.Load().tokenizer.inProcess.refused.all(); len(got) != 1 || got[tc.reason] != 1 {
			t.Errorf("refused %v, want %q", got, tc.reason)
		}
	}
}
