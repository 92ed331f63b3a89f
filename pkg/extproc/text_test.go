package extproc

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/prompt"
)

func withTextBlocks(c *Config) { c.TextBlocks = true }

// fataler reports what rig tests and properties do.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// asked returns what a decision is asked about a body.
func (r *rig) asked(t fataler, path, body string, headers ...string) (req pick.Request, source Source) {
	t.Helper()
	var h head
	routing, w := r.server.routing.Load(), &work{}
	h.read(headersMsg("POST", path, false, headers...).GetRequestHeaders().GetHeaders().GetHeaders(), routing)
	if err := w.body.Scan(h.kind, []byte(body)); err != nil {
		t.Fatal(err)
	}
	w.prompt.start(h.kind, []byte(body), &w.body, routing.seed(&h, routing.adapter(w.body.Model), &w.body))
	r.server.tokenize(context.Background(), routing, w)
	w.ask(&req)
	return req, w.prompt.Source
}

type chatMessage struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

// chatBody is a chat as clients write it.
func chatBody(more string, messages ...chatMessage) string {
	m, err := json.Marshal(messages)
	if err != nil {
		panic(err)
	}
	return `{"model":"m",` + more + `"messages":` + string(m) + `}`
}

func shared(a, b []block.Chain) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// TestTextBlocks: what prompts without token ids have in common.
func TestTextBlocks(t *testing.T) {
	system := chatMessage{"system", strings.Repeat("You are kind. ", 100)} // 1,400 bytes
	ask := func(s string) chatMessage { return chatMessage{"user", strings.Repeat(s, 600)} }
	answer := chatMessage{"assistant", "yes"}
	image := chatMessage{"user", []any{map[string]any{"type": "image_url", "image_url": map[string]any{"url": strings.Repeat("A", 2000)}}}}
	const tool, otherTool = `"tools":[{"name":"a"}],`, `"tools":[{"name":"b"}],`
	one := chatBody("", system, ask("a"))
	anthropic := func(s string) string {
		return `{"model":"m","system":"` + strings.Repeat("rules ", 300) + `","messages":[{"role":"user","content":"` + strings.Repeat(s, 600) + `"}]}`
	}
	for name, tc := range map[string]struct {
		path     string
		a, b     string
		headers  []string // of b
		blocks   int      // of b
		inCommon int
	}{
		"the same":                {chat, one, one, nil, 8, 8},
		"the next turn":           {chat, one, chatBody("", system, ask("a"), answer, ask("c")), nil, 10, 8},
		"another user":            {chat, one, chatBody("", system, ask("b")), nil, 8, 5},
		"the system prompt alone": {chat, one, chatBody("", system), nil, 5, 5},
		"another system prompt":   {chat, one, chatBody("", chatMessage{"system", "x" + system.Content.(string)}, ask("a")), nil, 8, 0},
		"the same tools":          {chat, chatBody(tool, system), chatBody(tool, system, ask("a")), nil, 8, 5},
		"other tools":             {chat, chatBody(tool, system), chatBody(otherTool, system), nil, 5, 0},
		"an image ends it":        {chat, chatBody("", system, image), chatBody("", system, image, answer, ask("a")), nil, 5, 5},
		"an image comes later":    {chat, chatBody("", system, image), chatBody("", system, ask("a"), image), nil, 8, 5},
		"what does not matter":    {chat, one, strings.TrimSuffix(one, "}") + `,"max_tokens":3,"stream":true}`, nil, 8, 8},
		"another model":           {chat, one, strings.Replace(one, `"m"`, `"n"`, 1), nil, 8, 0},
		"a salt":                  {chat, one, chatBody(`"cache_salt":"s",`, system, ask("a")), nil, 8, 0},
		"a tenant":                {chat, one, one, []string{"x-tenant-id", "t"}, 8, 0},
		"text":                    {completions, `{"model":"m","prompt":"` + strings.Repeat("a", 1000) + `"}`, `{"model":"m","prompt":"` + strings.Repeat("a", 700) + `b"}`, nil, 2, 2},
		"too short":               {completions, `{"model":"m","prompt":"a"}`, `{"model":"m","prompt":"a"}`, nil, 0, 0},
		"system beside messages":  {"/v1/messages", anthropic("a"), anthropic("b"), nil, 9, 7},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, splitPool(), withTextBlocks)
			a, _ := r.asked(t, tc.path, tc.a)
			b, source := r.asked(t, tc.path, tc.b, tc.headers...)
			if len(b.Text) != tc.blocks || shared(a.Text, b.Text) != tc.inCommon {
				t.Errorf("%d runs, of which %d in common; want %d, %d", len(b.Text), shared(a.Text, b.Text), tc.blocks, tc.inCommon)
			}
			if known := source == Text; known != (tc.blocks > 0) || len(b.Chains) > 0 || b.NoGuess {
				t.Errorf("asked with %+v, from %v", b, source)
			}
			if n := len(b.Text) * b.TextBlockTokens; n > b.Tokens {
				t.Errorf("%d tokens of text in a prompt of %d", n, b.Tokens)
			}
		})
	}
}

// TestTextBlocksWhereNeeded: token ids, when they are known, are better.
func TestTextBlocksWhereNeeded(t *testing.T) {
	body := chatBody("", chatMessage{"user", strings.Repeat("a", 1000)})
	works := withTokenizer(func(_ context.Context, dst []uint32, _ prompt.Kind, _ []byte) ([]uint32, error) {
		return append(dst, 1, 2, 3, 4, 5), nil
	})
	fails := withTokenizer(func(_ context.Context, dst []uint32, _ prompt.Kind, _ []byte) ([]uint32, error) {
		return append(dst, 1, 2), errors.New("no engine answers")
	})
	for name, tc := range map[string]struct {
		change []func(*Config)
		body   string
		source Source
		chains int
		text   int
	}{
		"no tokenizer":    {[]func(*Config){withTextBlocks}, body, Text, 0, 4},
		"it fails":        {[]func(*Config){withTextBlocks, fails}, body, Text, 0, 4},
		"it works":        {[]func(*Config){withTextBlocks, works}, body, Engine, 1, 0},
		"ids in the body": {[]func(*Config){withTextBlocks}, strings.TrimSuffix(body, "}") + `,"nvext":{"token_data":[1,2]}}`, FromBody, 0, 0},
		"turned off":      {[]func(*Config){fails}, body, Unknown, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, splitPool(), tc.change...)
			req, source := r.asked(t, chat, tc.body)
			if source != tc.source || len(req.Chains) != tc.chains || len(req.Text) != tc.text {
				t.Errorf("%d chains and %d runs of text, from %v", len(req.Chains), len(req.Text), source)
			}
			r.serve(t, chat, tc.body)
			if n := r.metric(t, "warmpath_prompts_total", "source", tc.source.String()); n != 2 {
				t.Errorf("%v prompts from %v, want 2", n, tc.source)
			}
			known := uint64(0)
			if tc.chains > 0 || tc.source == FromBody {
				known = 1
			}
			if c := r.server.Counts(); c.Prompts != 1 || c.KnownPrompts != known {
				t.Errorf("%d of %d prompts are known, want %d", c.KnownPrompts, c.Prompts, known)
			}
		})
	}
}

// TestTextBlocksOfAnyPrompts: two prompts have as many runs in common as their
// texts have full runs in common.
func TestTextBlocksOfAnyPrompts(t *testing.T) {
	r := newRig(t, splitPool(), withTextBlocks)
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.SampledFrom([]rune("ab \"\\\n\u00e9\U0001f600")), 0, 600, -1)
		message := rapid.Custom(func(t *rapid.T) chatMessage {
			return chatMessage{rapid.SampledFrom([]string{"user", "assistant"}).Draw(t, "role"), word.Draw(t, "content")}
		})
		begin := rapid.SliceOfN(message, 0, 3).Draw(t, "begin")
		body := func(label string) (string, string) {
			all := slices.Concat(begin, rapid.SliceOfN(message, 1, 3).Draw(t, label))
			text := chatBody("", all...)
			return text, strings.TrimSuffix(text[strings.Index(text, `[`):], "}")
		}
		bodyA, textA := body("a")
		bodyB, textB := body("b")
		same := 0
		for same < min(len(textA), len(textB)) && textA[same] == textB[same] {
			same++
		}
		a, _ := r.asked(t, chat, bodyA)
		b, _ := r.asked(t, chat, bodyB)
		if len(a.Text) != len(textA)/block.TextBytes || shared(a.Text, b.Text) != same/block.TextBytes {
			t.Fatalf("%d runs of %d bytes; %d in common, of %d bytes", len(a.Text), len(textA), shared(a.Text, b.Text), same)
		}
		for i := shared(a.Text, b.Text); i < min(len(a.Text), len(b.Text)); i++ {
			if a.Text[i] == b.Text[i] {
				t.Fatalf("run %d is equal after a difference", i)
			}
		}
	})
}
