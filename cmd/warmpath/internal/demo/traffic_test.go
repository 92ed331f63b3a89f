package demo

import (
	"strings"
	"testing"
	"time"
)

func TestReadAnswer(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		stream     bool
	}{
		{"plain", `{"choices":[{"message":{"content":"hello"}}],"usage":{"prompt_tokens":40,"prompt_tokens_details":{"cached_tokens":32}}}`, false},
		{"streamed", "data: {\"choices\":[{\"delta\":{\"content\":\"hel\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"lo\"}}]}\n\n" +
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"prompt_tokens_details\":{\"cached_tokens\":32}}}\n\ndata: [DONE]\n\n", true},
	} {
		text, u, err := readAnswer(strings.NewReader(tc.body), tc.stream)
		if err != nil || text != "hello" || u.PromptTokens != 40 || u.Details.CachedTokens != 32 {
			t.Errorf("%s: %q, %+v, %v", tc.name, text, u, err)
		}
	}
	for _, stream := range []bool{false, true} {
		if _, _, err := readAnswer(strings.NewReader("data: {"), stream); err == nil {
			t.Errorf("a broken answer (stream %v) was read", stream)
		}
	}
}

// An infinite cache holds what was answered, and never a whole prompt.
func TestIdeal(t *testing.T) {
	tr := newTraffic("http://unused.test")
	chat := []message{{"system", tr.systems[0]}, {"user", "first"}}
	if n := tr.send(chat); n != 0 {
		t.Errorf("%d tokens of the first chat are known", n)
	}
	// A second request that overlaps with the first counts as known: workers cache
	// a prompt as soon as they compute it.
	if n := tr.send(chat); n == 0 {
		t.Error("nothing of an equal chat under way is known")
	}
	tr.remember(append(chat, message{"assistant", "answer"}))
	again := tr.send(chat)
	if again == 0 || again%blockSize != 0 {
		t.Errorf("%d tokens of the same chat are known", again)
	}
	longer := tr.send(append(chat, message{"assistant", "answer"}, message{"user", strings.Repeat("more ", 20)}))
	if longer < again {
		t.Errorf("the next turn knows %d tokens, less than the %d of the one before", longer, again)
	}
	if n := tr.send([]message{{"system", tr.systems[1]}, {"user", "first"}}); n > 2*blockSize {
		t.Errorf("another tenant knows %d tokens, more than the opening words that all share", n)
	}
}

func TestResult(t *testing.T) {
	tr := newTraffic("http://unused.test")
	now := time.Now()
	tr.add(served{at: now.Add(-time.Minute), prompt: 100, cached: 0, ideal: 50, prefill: "p0", decode: "d0"})
	tr.add(served{at: now, prompt: 100, cached: 80, ideal: 90, prefill: "p1", decode: "d0"})
	tr.add(served{at: now, err: "503"})
	r := tr.result()
	if r.Requests != 3 || r.Errors != 1 || r.HitRate != 0.4 || r.HitRateLast10s != 0.8 || r.Ceiling != 0.7 {
		t.Errorf("%+v", r)
	}
	if r.TopWorkerShare != 1 {
		t.Errorf("the only worker of the last 10 s has a share of %v", r.TopWorkerShare)
	}
	if r.DecisionsByWorker["d0"] != 2 || r.DecisionsByWorker["p0"] != 1 || r.DecisionsByWorker["p1"] != 1 || len(r.ErrorSamples) != 1 {
		t.Errorf("%+v", r)
	}
	got := line(3*time.Second, tr.since(now.Add(-time.Second)), 7)
	if want := "    3s      2       1     80.0%    90.0%         7  A: p1 1"; got != want {
		t.Errorf("line\n%q, want\n%q", got, want)
	}
}

func TestTopShare(t *testing.T) {
	list := []served{
		{tenant: 0, prefill: "p0", decode: "d"},
		{tenant: 0, prefill: "p0", decode: "d"},
		{tenant: 0, prefill: "p1", decode: "d"},
		{tenant: 0, prefill: "p0", decode: "d"},
		{tenant: 1, decode: "a0"},
		{tenant: 1, decode: "a1"},
		{tenant: 2, err: "503"},
	}
	if got := topShare(list); got != (0.75+0.5)/2 {
		t.Errorf("%v, want the mean of 3/4 and 1/2", got)
	}
	if topShare(nil) != 0 {
		t.Error("a share of nothing")
	}
}

func TestValidate(t *testing.T) {
	good := Config{Gateway: "envoy", Clients: 1, SplitAt: time.Second, Duration: time.Minute}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"gateway":   func(c *Config) { c.Gateway = "nginx" },
		"negative":  func(c *Config) { c.Duration = -1 },
		"too late":  func(c *Config) { c.SplitAt = time.Hour },
		"no client": func(c *Config) { c.Clients = -1 },
	} {
		bad := good
		change(&bad)
		if bad.Validate() == nil {
			t.Errorf("%s: accepted %+v", name, bad)
		}
	}
}
