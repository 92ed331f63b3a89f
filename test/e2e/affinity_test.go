package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/gateway"
	"github.com/warmpath/warmpath/pkg/simengine"
)

// TestPrefixSticks wants every prefix on the worker that computed it first, and
// different prefixes on different workers. Nothing is guessed: affinity comes
// from events.
func TestPrefixSticks(t *testing.T) {
	for _, c := range []struct {
		name   string
		follow gateway.FollowMode
		split  bool
		h2c    bool
	}{
		{"header/aggregated", gateway.ByHeader, false, false},
		{"header/split", gateway.ByHeader, true, false},
		{"metadata/split/h2c", gateway.ByMetadata, true, true},
		{"override_host/split", gateway.OverrideHost, true, false},
		{"override_host/aggregated/h2c", gateway.OverrideHost, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			s.client = newClient(t, c.h2c)
			prefill, decode := s.pool(c.split)
			s.list(join(prefill, decode)...)
			s.startPicker(pickerOptions{})
			s.startGateway(gateway.Config{Follow: c.follow}, join(prefill, decode)...)
			s.wantTokenPromptsStick(prefill)
			s.wantChatsStick(prefill)
			if n := s.metric("warmpath_prompts_total", `source="unknown"`); n != 0 {
				t.Errorf("%v prompts were not tokenised", n)
			}
		})
	}
}

// pool starts two aggregated workers, or two prefill and two decode workers. The
// first list has those that compute prompts.
func (s *stack) pool(split bool) (prefill, decode []*worker) {
	s.t.Helper()
	if !split {
		return s.sims(2, "agg", fleet.Aggregated), nil
	}
	return s.sims(2, "prefill", fleet.Prefill), s.sims(2, "decode", fleet.Decode)
}

// prompts is how many prefixes are spread at random: the chance that one of two
// workers gets none is 2 in 2^20. Of these, some are sent again.
const prompts, repeats = 20, 8

func (s *stack) wantTokenPromptsStick(prefill []*worker) {
	s.t.Helper()
	const length = 10*blockSize + 3
	holder := map[int]string{}
	for i := range prompts {
		holder[i] = named(s.t, s.complete(tokens(i, length)).prefill(), prefill).name
	}
	if used := slices.Compact(slices.Sorted(maps.Values(holder))); len(used) != len(prefill) {
		s.t.Errorf("%d different prefixes all went to %v", prompts, used)
	}
	for i := range prompts {
		s.awaitHeld(holder[i], tokens(i, length))
	}
	for i := range repeats {
		s.idle()
		r := s.complete(append(tokens(i, length), 7, 8, 9)) // a longer prompt with the same start
		if r.prefill() != holder[i] || cachedTokens(s.t, r) != 10*blockSize {
			s.t.Errorf("prompt %d: computed by %q with %d tokens cached, want %q and %d",
				i, r.prefill(), cachedTokens(s.t, r), holder[i], 10*blockSize)
		}
	}
}

func (s *stack) wantChatsStick(prefill []*worker) {
	s.t.Helper()
	holder := map[string]string{}
	var systems []string
	for i := range prompts {
		system := fmt.Sprintf("%02d is your number. %s", i, // apart in the first block
			strings.Repeat("Be brief. ", 20))
		r, _ := s.chat(system, "first question")
		holder[system] = named(s.t, r.prefill(), prefill).name
		systems = append(systems, system)
	}
	for _, system := range systems {
		s.awaitHeld(holder[system], simengine.ChatTokens([][2]string{{"system", system}, {"user", "first question"}}, true))
	}
	if used := slices.Compact(slices.Sorted(maps.Values(holder))); len(used) != len(prefill) {
		s.t.Errorf("%d different system prompts all went to %v", prompts, used)
	}
	for _, system := range systems[:repeats] {
		want := holder[system]
		s.idle()
		r, cached := s.chat(system, "another question")
		// What both chats have in common, in full blocks.
		shared := len(simengine.ChatTokens([][2]string{{"system", system}, {"user", ""}}, false)) - len("\n") - 1
		if r.prefill() != want || cached != shared/blockSize*blockSize {
			s.t.Errorf("computed by %q with %d tokens cached, want %q and %d", r.prefill(), cached, want, shared/blockSize*blockSize)
		}
	}
}

// TestGuessBridgesEvents wants a repeat that comes before any event to follow
// the first all the same: the picker remembers its own decision.
func TestGuessBridgesEvents(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	prefill := s.sims(4, "prefill", fleet.Prefill, "--namespace", "elsewhere") // their events do not count
	decode := s.sims(1, "decode", fleet.Decode)
	s.list(join(prefill, decode)...)
	s.startPicker(pickerOptions{guesses: true})
	s.startGateway(gateway.Config{})
	for i := range 5 {
		prompt := tokens(i, 30*blockSize)
		first := s.complete(prompt)
		s.idle()
		if again := s.complete(prompt); again.prefill() != first.prefill() {
			t.Errorf("prompt %d went to %q and then to %q", i, first.prefill(), again.prefill())
		}
	}
	if held := s.index(); len(held) != 0 {
		t.Errorf("the index has blocks from another namespace: %v", held)
	}
}

// TestEvictedPrefixIsLost has a worker evict a prefix that another one computes
// later: requests follow.
func TestEvictedPrefixIsLost(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := s.sims(2, "agg", fleet.Aggregated, "--blocks", "64")
	s.list(agg...)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})

	prompt := tokens(1, 40*blockSize)
	first := s.sticks(prompt, agg).prefill()
	evicter, other := agg[0], agg[1]
	if first == other.name {
		evicter, other = other, evicter
	}
	direct := func(w *worker, prompt []uint32) {
		t.Helper()
		s.ok(post(t, "http://"+w.addr()+"/v1/completions", completion(prompt), nil))
	}
	direct(evicter, tokens(2, 40*blockSize))
	direct(evicter, tokens(3, 40*blockSize))
	eventually(t, "the index has no block of the prompt for "+first, func() bool { _, none := s.holds(first, prompt); return none })

	direct(other, prompt)
	s.awaitHeld(other.name, prompt)
	for range 4 {
		s.idle()
		if r := s.complete(prompt); r.prefill() != other.name {
			t.Errorf("computed by %q, want %q, which holds the prompt now", r.prefill(), other.name)
		}
	}
	if s.metric("warmpath_index_blocks_total", `kind="removed"`) == 0 {
		t.Error("no block was removed")
	}
	// A cleared cache holds nothing.
	s.idle()
	s.ok(post(t, "http://"+other.addr()+"/reset_prefix_cache", "", nil))
	eventually(t, "the index has no block of the prompt for "+other.name, func() bool { _, none := s.holds(other.name, prompt); return none })
}

// TestSaltsKeepApart wants a cached prompt to count under its own salt only, as
// workers hash it.
func TestSaltsKeepApart(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	agg := s.sims(2, "agg", fleet.Aggregated)
	s.list(agg...)
	s.startPicker(pickerOptions{})
	s.startGateway(gateway.Config{})
	ask := func(salt string) (r reply, matched float64) {
		t.Helper()
		s.idle()
		before := s.metric("warmpath_prompt_blocks_total", `kind="matched"`)
		body := completion(tokens(1, 20*blockSize))
		if salt != "" {
			body = strings.Replace(body, "{", fmt.Sprintf(`{"cache_salt":%q,`, salt), 1)
		}
		r = s.ok(s.post("/v1/completions", body, nil))
		return r, s.metric("warmpath_prompt_blocks_total", `kind="matched"`) - before
	}
	holder, blocks := map[string]string{}, 0
	for _, salt := range []string{"", "a", "b"} {
		r, matched := ask(salt)
		if matched != 0 || cachedTokens(t, r) != 0 {
			t.Errorf("salt %q: %v blocks matched, %d tokens cached, of other salts", salt, matched, cachedTokens(t, r))
		}
		holder[salt] = r.prefill()
		blocks += 20
		s.awaitMetric(float64(blocks), "warmpath_index_entries")
	}
	for salt, want := range holder {
		r, matched := ask(salt)
		if r.prefill() != want || matched != 20 || cachedTokens(t, r) != 19*blockSize {
			t.Errorf("salt %q: computed by %q, %v blocks matched, %d tokens cached, want %q, 20, %d",
				salt, r.prefill(), matched, cachedTokens(t, r), want, 19*blockSize)
		}
	}
}
