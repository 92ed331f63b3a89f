package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/simengine"
)

const (
	tenants     = 8 // each has a system prompt of its own
	turns       = 5 // per conversation
	answerSize  = 24
	systemWords = 500
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// served is one answered request.
type served struct {
	at              time.Time
	tenant          int
	prompt, cached  int // tokens, as the worker reports
	ideal           int // tokens that an infinite cache would have had
	prefill, decode string
	err             string
}

// traffic is the load and what came of it.
type traffic struct {
	url     string
	http    *http.Client
	systems []string

	mu   sync.Mutex
	all  []served
	seen map[block.Chain]bool // what an infinite cache would hold
}

func newTraffic(url string) *traffic {
	t := &traffic{
		url:  url + "/v1/chat/completions",
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: 30 * time.Second},
		seen: map[block.Chain]bool{},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range tenants {
		t.systems = append(t.systems, fmt.Sprintf("You answer for tenant %c. ", 'A'+i)+words(random, systemWords))
	}
	return t
}

var vocabulary = strings.Fields("cache block prefix worker token prompt route request model answer queue tensor gateway cluster batch stream header memory decode prefill event index")

func words(random *rand.Rand, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = vocabulary[random.IntN(len(vocabulary))]
	}
	return strings.Join(list, " ")
}

// client holds one conversation after the other until ctx ends. A request under
// way then is finished, so that every request counts on all sides.
func (t *traffic) client(ctx context.Context, n int) {
	requests := context.WithoutCancel(ctx)
	random := rand.New(rand.NewPCG(uint64(n), 3))
	for ctx.Err() == nil {
		tenant := random.IntN(tenants)
		chat := []message{{"system", t.systems[tenant]}}
		for turn := 0; turn < turns && ctx.Err() == nil; turn++ {
			chat = append(chat, message{"user", words(random, 12)})
			answer, s := t.ask(requests, chat, turn%2 == 0)
			s.tenant = tenant
			t.add(s)
			if s.err != "" {
				pause(ctx, 200*time.Millisecond)
				break
			}
			chat = append(chat, message{"assistant", answer})
			pause(ctx, time.Duration(20+random.IntN(60))*time.Millisecond)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (t *traffic) add(s served) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, s)
}

// usage is the part of an answer that is measured.
type usage struct {
	PromptTokens int `json:"prompt_tokens"`
	Details      struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// ask sends one turn and returns the answer.
func (t *traffic) ask(ctx context.Context, chat []message, stream bool) (string, served) {
	fail := func(err error) (string, served) { return "", served{at: time.Now(), err: err.Error()} }
	request := map[string]any{"model": model, "messages": chat, "max_tokens": answerSize}
	if stream {
		request["stream"], request["stream_options"] = true, map[string]bool{"include_usage": true}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fail(err)
	}
	ideal := t.send(chat)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.http.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 500))
		if err != nil {
			return fail(err)
		}
		return fail(fmt.Errorf("%s: %s", resp.Status, text))
	}
	answer, u, err := readAnswer(resp.Body, stream)
	if err != nil {
		return fail(err)
	}
	t.remember(append(chat, message{"assistant", answer}))
	return answer, served{
		at: time.Now(), prompt: u.PromptTokens, cached: u.Details.CachedTokens, ideal: ideal,
		prefill: resp.Header.Get("x-sim-prefill-worker"), decode: resp.Header.Get("x-sim-decode-worker"),
	}
}

// readAnswer reads the text and the usage of an answer, plain or streamed.
func readAnswer(body io.Reader, stream bool) (string, usage, error) {
	type answer struct {
		Choices []struct {
			Message, Delta struct{ Content string }
		}
		Usage *usage
	}
	var text strings.Builder
	var u usage
	take := func(data []byte) error {
		var a answer
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		for _, c := range a.Choices {
			text.WriteString(c.Message.Content)
			text.WriteString(c.Delta.Content)
		}
		if a.Usage != nil {
			u = *a.Usage
		}
		return nil
	}
	if !stream {
		data, err := io.ReadAll(body)
		if err != nil {
			return "", u, err
		}
		if err := take(data); err != nil {
			return "", u, err
		}
		return text.String(), u, nil
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		if err := take(data); err != nil {
			return "", u, err
		}
	}
	return text.String(), u, lines.Err()
}

// send returns how many tokens of a chat an infinite cache would hold by now, and
// puts the chat into it: workers cache a prompt as soon as they compute it.
func (t *traffic) send(chat []message) int {
	tokens := simengine.ChatTokens(pairs(chat), true)
	t.mu.Lock()
	defer t.mu.Unlock()
	n, known := 0, true
	for _, c := range chains(tokens) {
		if known = known && t.seen[c]; known {
			n++
		}
		t.seen[c] = true
	}
	// A worker computes at least the last token of a prompt.
	return min(n*blockSize, (len(tokens)-1)/blockSize*blockSize)
}

// remember puts a chat with its answer into the infinite cache.
func (t *traffic) remember(chat []message) {
	list := chains(simengine.ChatTokens(pairs(chat), false))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range list {
		t.seen[c] = true
	}
}

func pairs(chat []message) [][2]string {
	list := make([][2]string, len(chat))
	for i, m := range chat {
		list[i] = [2]string{m.Role, m.Content}
	}
	return list
}

func chains(tokens []uint32) []block.Chain {
	hashes := block.Layout{Size: blockSize}.AppendHashes(nil, tokens, block.NewSeed("", ""))
	return block.AppendChains(nil, hashes)
}

// since returns what was served from a moment on.
func (t *traffic) since(from time.Time) []served {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := len(t.all)
	for i > 0 && !t.all[i-1].at.Before(from) {
		i--
	}
	return append([]served(nil), t.all[i:]...)
}

// rates returns the hit rate and its ceiling over some requests.
func rates(list []served) (hit, ceiling float64) {
	var prompt, cached, ideal int
	for _, s := range list {
		prompt += s.prompt
		cached += s.cached
		ideal += s.ideal
	}
	if prompt == 0 {
		return 0, 0
	}
	return float64(cached) / float64(prompt), float64(ideal) / float64(prompt)
}

func (t *traffic) result() Result {
	list := t.since(time.Time{})
	r := Result{Requests: len(list), DecisionsByWorker: map[string]int{}, ErrorSamples: map[string]string{}}
	for _, s := range list {
		if s.err != "" {
			r.Errors++
			if len(r.ErrorSamples) < 3 {
				r.ErrorSamples[s.at.Format(time.TimeOnly)] = s.err
			}
			continue
		}
		r.DecisionsByWorker[s.decode]++
		if s.prefill != "" && s.prefill != s.decode {
			r.DecisionsByWorker[s.prefill]++
		}
	}
	r.HitRate, r.Ceiling = rates(list)
	recent := t.since(time.Now().Add(-10 * time.Second))
	r.HitRateLast10s, _ = rates(recent)
	r.TopWorkerShare = topShare(recent)
	return r
}

// topShare is how much of a tenant's requests its busiest worker computed, as the
// mean over tenants: 1 when each tenant has a worker of its own.
func topShare(list []served) float64 {
	by := map[int]map[string]int{}
	for _, s := range list {
		if s.err == "" {
			add(by, s)
		}
	}
	sum := 0.0
	for _, workers := range by {
		total, most := 0, 0
		for _, n := range workers {
			total += n
			most = max(most, n)
		}
		sum += float64(most) / float64(total)
	}
	if len(by) == 0 {
		return 0
	}
	return sum / float64(len(by))
}

// add counts a request for its tenant and the worker that computed its prompt.
func add(by map[int]map[string]int, s served) {
	where := s.prefill
	if where == "" {
		where = s.decode
	}
	if by[s.tenant] == nil {
		by[s.tenant] = map[string]int{}
	}
	by[s.tenant][where]++
}
