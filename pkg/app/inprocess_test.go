package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/render"
)

func TestInProcessAgrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.want(t, sesame, "not_loaded")
		if err := l.ready(); err == nil || !strings.Contains(err.Error(), "not loaded yet") {
			t.Errorf("ready: %v", err)
		}
		l.start(t)
		if err := l.ready(); err != nil {
			t.Errorf("ready: %v", err)
		}
		for range 5 {
			l.want(t, sesame, "")
		}
		l.want(t, withTools, "")
		if live := l.checks[originLive][parity.Agree].Load(); live != 6 {
			t.Errorf("%d requests were compared, want 6", live)
		}
		// Special tokens are as the engine has them, not as they usually are.
		text := `{"model":"m","prompt":"sesame"}`
		p, reason := l.ask(t, prompt.Completion, text)
		if reason != "" || p.Tokens != len("sesame") || l.checks[originLive][parity.Differ].Load() != 0 {
			t.Errorf("completion: %q, %d tokens", reason, p.Tokens)
		}
		if l.refused.all()["not_loaded"] != 1 || len(l.refused.all()) != 1 {
			t.Errorf("refused: %v", l.refused.all())
		}
		if l.log.count("sesame") > 0 || l.log.count("level=WARN") > 0 {
			t.Errorf("log:\n%s", l.log)
		}
	})
}

// TestInProcessDiffers: one engine of two has another template. The log says
// which, and where the ids part; when it agrees, so does the gate.
func TestInProcessDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.engines.set("b", func(kind prompt.Kind, body []byte) ([]uint32, error) {
			if strings.Contains(string(body), "tools") {
				return honest("!")(kind, body)
			}
			return honest("")(kind, body)
		})
		l.start(t)
		l.want(t, sesame, "")
		l.want(t, withTools, "mismatch")
		if l.log.count("level=WARN") != 1 || l.log.count("shape=chat_tools") != 1 || l.log.count("engine=b") != 1 {
			t.Errorf("log:\n%s", l.log)
		}
		page := l.page()
		last := page.Shapes[parity.ChatTools].Last
		if last == nil || last.Engine != "b" || last.Token != last.TokensHere || last.TokensEngine != last.TokensHere+1 || page.Shapes[parity.ChatTools].InUse {
			t.Errorf("page: %+v", last)
		}
		calls := l.engines.calls.Load()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if l.engines.calls.Load() != calls {
			t.Error("engines were asked again before it was time")
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if l.engines.calls.Load() == calls || l.log.count("level=WARN") != 1 {
			t.Errorf("%d calls more; log:\n%s", l.engines.calls.Load()-calls, l.log)
		}
		l.engines.set("b", honest(""))
		time.Sleep(time.Minute + 2*time.Second)
		synctest.Wait()
		l.want(t, withTools, "")
		if l.log.count("sesame") > 0 {
			t.Error("the log has the prompt")
		}
	})
}

// TestLiveRequestDiffers though canned ones agree.
func TestLiveRequestDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		picky := func(kind prompt.Kind, body []byte) ([]uint32, error) {
			if strings.Contains(string(body), "sesame") {
				ids, err := honest("")(kind, body)
				ids[9]++
				return ids, err
			}
			return honest("")(kind, body)
		}
		l.engines.set("a", picky)
		l.start(t)
		l.want(t, sesame, "") // routed, and compared afterwards
		l.want(t, sesame, "mismatch")
		l.want(t, withTools, "") // another shape; it will differ too
		l.want(t, withTools, "mismatch")
		if l.log.count("token=9") != 2 || l.log.count("case=live") != 2 || l.log.count("sesame") > 0 {
			t.Errorf("log:\n%s", l.log)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		l.want(t, sesame, "mismatch") // canned requests alone do not open it
		l.engines.set("a", honest(""))
		time.Sleep(time.Minute + 2*time.Second)
		synctest.Wait()
		l.want(t, sesame, "")
	})
}

// TestImages: what no canned request shows is learned from live ones, for which
// an engine is asked anyway.
func TestImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.start(t)
		calls := l.engines.calls.Load()
		for range 3 {
			p, reason := l.ask(t, prompt.Chat, withImage)
			if reason != "unverified" {
				t.Fatalf("refused as %q", reason)
			}
			p.IDs = bytesOf(withImage)
			l.told(&p)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		if l.engines.calls.Load() != calls {
			t.Error("an engine was asked twice")
		}
		p, reason := l.ask(t, prompt.Chat, withImage)
		want := strings.Index(withImage, "image_url")
		if reason != "" || !p.Partial || p.Tokens != want || len(p.Chains) != want/4 {
			t.Errorf("%q, partial %v, %d tokens, %d chains; want %d tokens", reason, p.Partial, p.Tokens, len(p.Chains), want)
		}
		if l.checks[originLive][parity.Agree].Load() != 4 {
			t.Errorf("%d agree", l.checks[originLive][parity.Agree].Load())
		}
	})
}

func TestNoEndpoint(t *testing.T) {
	for _, policy := range []parity.Policy{parity.WhenAvailable, parity.Required} {
		synctest.Test(t, func(t *testing.T) {
			l := startLocal(t, func(c *inProcessConfig) { c.Policy = policy })
			l.engines.set("a", failing(fmt.Errorf("%w: status 404", render.ErrUnsupported)))
			l.start(t)
			want := ""
			if policy == parity.Required {
				want = "unchecked"
			}
			l.want(t, sesame, want)
			var scanned prompt.Body
			if err := scanned.Scan(prompt.Chat, []byte(sesame)); err != nil {
				t.Fatal(err)
			}
			if !l.alone(&extproc.Prompt{Kind: prompt.Chat, Scanned: &scanned}) {
				t.Error("engines are asked, though they cannot tell")
			}
			l.engines.set("a", honest("")) // it has been upgraded
			time.Sleep(11 * time.Minute)
			synctest.Wait()
			l.want(t, sesame, "")
			if l.alone(&extproc.Prompt{Kind: prompt.Chat, Scanned: &scanned}) {
				t.Error("engines are not asked, though they can tell")
			}
			if l.ready() != nil || l.log.count("state=unchecked") == 0 {
				t.Errorf("ready: %v; log:\n%s", l.ready(), l.log)
			}
		})
	}
}

func TestParityOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, func(c *inProcessConfig) {
			c.Policy, c.Sampler = parity.Off, parity.NewSampler(0, 0)
		})
		l.engines.set("a", honest("wrong"))
		l.start(t)
		time.Sleep(time.Hour)
		l.want(t, sesame, "")
		if l.engines.calls.Load() != 0 || l.ready() != nil {
			t.Errorf("%d calls, ready: %v", l.engines.calls.Load(), l.ready())
		}
	})
}

// TestEnginesComeLate: nothing is known until one answers, and that is soon
// found out.
func TestEnginesComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.start(t)
		l.want(t, sesame, "unverified")
		if err := l.ready(); err == nil || !strings.Contains(err.Error(), "no engine") {
			t.Errorf("ready: %v", err)
		}
		l.engines.set("a", failing(render.ErrUnavailable)) // it starts
		time.Sleep(2 * time.Second)
		synctest.Wait()
		l.want(t, sesame, "unverified")
		if err := l.ready(); err != nil {
			t.Errorf("ready: %v", err)
		}
		l.engines.set("a", honest(""))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		l.want(t, sesame, "")
		l.engines.set("b", honest("other")) // a worker that joins is compared at once
		time.Sleep(2 * time.Second)
		synctest.Wait()
		l.want(t, sesame, "mismatch")
	})
}

// TestReadyInTheEnd: engines can be asked without the files.
func TestReadyInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.start(t)
		time.Sleep(29 * time.Second)
		if l.ready() == nil {
			t.Error("ready at once")
		}
		time.Sleep(2 * time.Second)
		if err := l.ready(); err != nil {
			t.Error(err)
		}
	})
}

// TestFilesCannotBeLoaded: it is told once per reason, and tried again.
func TestFilesCannotBeLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.source.set("", &modelfiles.Error{Code: modelfiles.NotFound, Msg: "there is no such folder"})
		l.start(t)
		if l.ready() != nil {
			t.Errorf("ready: %v", l.ready())
		}
		time.Sleep(20 * time.Second) // after 1, 2, 4 and 8 s
		synctest.Wait()
		if l.source.calls != 5 || l.log.count("level=WARN") != 1 || l.log.count("no such folder") != 1 {
			t.Errorf("%d attempts; log:\n%s", l.source.calls, l.log)
		}
		l.source.set("", errors.New("pre_tokenizer: Strange is not supported"))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if l.log.count("level=WARN") != 2 || l.page().Failure == "" {
			t.Errorf("log:\n%s", l.log)
		}
		if got := l.loads.all(); got["not_found"] != 5 || got["unsupported"] != 1 {
			t.Errorf("loads: %v", got)
		}
		l.source.set("", nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		l.want(t, sesame, "")
		if l.page().Failure != "" || l.loads.all()["ok"] != 1 {
			t.Errorf("page: %+v", l.page())
		}
	})
}

// TestFilesChange: new files are used once they agree; until then the old ones
// are, as long as those do.
func TestFilesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.start(t)
		l.want(t, sesame, "")
		first := l.current.Load()
		reload := func() {
			l.changed <- struct{}{}
			synctest.Wait()
		}
		reload()
		if l.current.Load() != first {
			t.Error("the same files were taken for others")
		}
		l.source.set("!", nil)
		reload()
		if l.current.Load() != first {
			t.Error("files that differ are in use")
		}
		if _, reason := l.ask(t, prompt.Chat, sesame); reason != "" {
			t.Errorf("refused as %q", reason)
		}
		if l.log.count("those before them stay in use") != 4 { // shapes of chats
			t.Errorf("log:\n%s", l.log)
		}
		l.source.set("", nil) // taken back, and tried once more
		reload()
		calls := l.engines.calls.Load()
		l.engines.set("b", honest(""))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := l.engines.calls.Load() - calls; n != 2*int64(len(parity.Canned(""))) {
			t.Errorf("engines were asked %d times: about files that were taken back, too", n)
		}
		l.engines.set("b", failing(render.ErrUnsupported))
		l.source.set("!", nil)
		reload()
		l.engines.set("a", honest("!")) // the engines follow
		l.ask(t, prompt.Chat, sesame)   // which shows that the old files differ
		time.Sleep(time.Minute + 2*time.Second)
		synctest.Wait()
		if l.current.Load() == first {
			t.Error("files that agree are not in use")
		}
		l.want(t, sesame, "")
		l.source.set("", &modelfiles.Error{Code: modelfiles.Changing, Msg: "half copied"})
		reload()
		l.source.set("!", nil)
		l.want(t, sesame, "") // files that cannot be read change nothing
		if l.log.count("those that are loaded stay in use") != 1 || l.log.count("new files are in use") != 1 {
			t.Errorf("log:\n%s", l.log)
		}
	})
}

// TestOldFiles: those of the cache are used while the hub is down, and it is asked
// again.
func TestOldFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.source.stale = &modelfiles.Error{Code: modelfiles.Unavailable, Msg: "the hub is down"}
		l.start(t)
		l.want(t, sesame, "")
		time.Sleep(3 * retryLast)
		synctest.Wait()
		if l.source.calls != 4 || l.log.count("the hub is down") != 1 {
			t.Errorf("%d attempts; log:\n%s", l.source.calls, l.log)
		}
		l.source.mu.Lock()
		l.source.stale = nil
		l.source.mu.Unlock()
		time.Sleep(3 * retryLast)
		synctest.Wait()
		if l.source.calls != 5 {
			t.Errorf("%d attempts", l.source.calls)
		}
	})
}

// TestPanicsAreContained: neither a file nor a request that nobody thought of
// ends the picker, or what else it does.
func TestPanicsAreContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.source.set("panic of the source", nil)
		l.start(t)
		l.want(t, sesame, "not_loaded")
		l.source.set("panic", nil)
		time.Sleep(time.Second)
		synctest.Wait()
		l.want(t, sesame, "not_loaded")
		if l.log.count("level=ERROR") != 2 || !strings.Contains(l.page().Failure, "panic") {
			t.Errorf("log:\n%s", l.log)
		}
		l.source.set("", nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		l.want(t, sesame, "")
		var scanned prompt.Body
		body := strings.Replace(withImage, "sesame, ", `"},{"type":"panic","text":"`, 1)
		if err := scanned.Scan(prompt.Chat, []byte(body)); err != nil {
			t.Fatal(err)
		}
		l.want(t, strings.Replace(sesame, `"sesame"`, `"panic"`, 1), "panic")
		l.told(&extproc.Prompt{Kind: prompt.Chat, Body: []byte(body), Scanned: &scanned, IDs: []uint32{1}})
		synctest.Wait()
		if l.checks[originLive][parity.Unsupported].Load() != 1 || l.log.count("level=ERROR") != 4 {
			t.Errorf("log:\n%s", l.log)
		}
		l.want(t, sesame, "")
	})
}

// TestUnsupportedRequest goes one step back, counted, and closes nothing.
func TestUnsupportedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.start(t)
		for range 3 {
			l.want(t, strings.Replace(withTools, "[]", `["strange"]`, 1), "unsupported_request")
		}
		l.want(t, withTools, "")
		if l.refused.all()["unsupported_request"] != 3 {
			t.Errorf("refused: %v", l.refused.all())
		}
	})
}

// TestSamplesAreBounded: many at once are dropped, and so are giants.
func TestSamplesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLocal(t, nil)
		l.engines.set("a", honest(""))
		l.start(t)
		giant := strings.Replace(sesame, "sesame", strings.Repeat("sesame", maxSampleBytes/6), 1)
		l.want(t, giant, "")
		if l.dropped.Load() != 1 || l.checks[originLive][parity.Agree].Load() != 0 {
			t.Errorf("dropped %d", l.dropped.Load())
		}
		block := make(chan struct{})
		l.engines.set("a", func(kind prompt.Kind, body []byte) ([]uint32, error) { <-block; return honest("")(kind, body) })
		for range maxSamples + 5 {
			l.want(t, sesame, "") // none waits for the engine
		}
		close(block)
		synctest.Wait()
		if l.dropped.Load() != 1+4 || l.checks[originLive][parity.Agree].Load() != maxSamples+1 {
			t.Errorf("dropped %d, compared %d", l.dropped.Load(), l.checks[originLive][parity.Agree].Load())
		}
	})
}

// TestWrongChains: what a request was routed by counts, not what comes out when
// it is computed again.
func TestWrongChains(t *testing.T) {
	ids := bytesOf(sesame)
	p := extproc.Prompt{IDs: ids}
	p.Hash(testLayout)
	wrong := slices.Clone(p.Chains)
	wrong[3]++
	for name, tc := range map[string]struct {
		s     sample
		token int
		same  bool
	}{
		"right":    {sample{chains: p.Chains, tokens: len(ids)}, len(p.Chains) * 4, true},
		"a prefix": {sample{chains: p.Chains[:2], tokens: 11}, 8, true},
		"wrong":    {sample{chains: wrong, tokens: len(ids)}, 12, false},
		"missing":  {sample{chains: p.Chains[:5], tokens: len(ids)}, 20, false},
		"too long": {sample{chains: p.Chains, tokens: len(ids) + 1}, len(ids), false},
	} {
		if token, same := tc.s.routed(ids, testLayout); token != tc.token || same != tc.same {
			t.Errorf("%s: %d, %v; want %d, %v", name, token, same, tc.token, tc.same)
		}
	}
}

// TestFilesChangeUnderLoad: each prompt is that of one version or the other.
func TestFilesChangeUnderLoad(t *testing.T) {
	l := startLocal(t, func(c *inProcessConfig) { c.Policy, c.Sampler = parity.Off, parity.NewSampler(0, 0) })
	ctx, cancel := context.WithCancel(t.Context())
	var keeping, asking sync.WaitGroup
	keeping.Go(func() { l.keep(ctx, l.changed) })
	t.Cleanup(func() { cancel(); keeping.Wait() })
	eventually(t, l.log, "the first files are loaded", func() bool { return l.current.Load() != nil })
	versions := map[int][]block.Chain{}
	for _, end := range []string{"", "a longer end"} {
		p := extproc.Prompt{IDs: bytesOf(sesame + end), Seed: block.NewSeed("", "")}
		p.Hash(testLayout)
		versions[p.Tokens] = p.Chains
	}
	for range 4 {
		asking.Go(func() {
			var scanned prompt.Body
			if err := scanned.Scan(prompt.Chat, []byte(sesame)); err != nil {
				t.Error(err)
				return
			}
			var p extproc.Prompt
			for range 500 {
				p = extproc.Prompt{Kind: prompt.Chat, Body: []byte(sesame), Scanned: &scanned, Seed: block.NewSeed("", ""), Chains: p.Chains[:0]}
				if reason := l.tokenize(&p); reason != "" {
					t.Errorf("refused as %q", reason)
				}
				if want, ok := versions[p.Tokens]; !ok || !slices.Equal(p.Chains, want) {
					t.Errorf("%d tokens with chains of another version", p.Tokens)
				}
			}
		})
	}
	for i := range 20 {
		l.source.set([]string{"a longer end", ""}[i%2], nil)
		l.changed <- struct{}{}
	}
	asking.Wait()
}
