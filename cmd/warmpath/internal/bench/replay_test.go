package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// slowCache is the twin of cache: blocks in the order of their use, oldest first.
type slowCache struct {
	capacity int
	blocks   []block.Chain
}

func (c *slowCache) use(prompt []block.Chain) []block.Chain {
	for _, b := range slices.Backward(prompt) {
		c.blocks = slices.DeleteFunc(c.blocks, func(x block.Chain) bool { return x == b })
		c.blocks = append(c.blocks, b)
	}
	over := max(0, len(c.blocks)-c.capacity)
	gone := slices.Clone(c.blocks[:over])
	c.blocks = c.blocks[over:]
	return gone
}

func TestCacheEqualsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fast := newCache(rapid.IntRange(4, 12).Draw(t, "capacity"))
		slow := &slowCache{capacity: fast.capacity}
		for range rapid.IntRange(1, 40).Draw(t, "prompts") {
			// Prompts are paths in a small tree.
			hashes := rapid.SliceOfN(rapid.Uint64Range(1, 3), 1, 4).Draw(t, "prompt")
			var prompt []block.Chain
			for i, h := range hashes {
				if i == 0 {
					prompt = append(prompt, block.Root(block.Hash(h)))
				} else {
					prompt = append(prompt, prompt[i-1].Next(block.Hash(h)))
				}
			}
			got, want := fast.use(prompt), slow.use(prompt)
			if !slices.Equal(got, want) {
				t.Fatalf("%v leave, want %v", got, want)
			}
			if fast.held(prompt) != len(prompt) || len(fast.places) != len(slow.blocks) {
				t.Fatalf("%d of %d held, %d in the cache, want %d", fast.held(prompt), len(prompt), len(fast.places), len(slow.blocks))
			}
		}
	})
}

// tinyTrace has prompts that share a first block, come back and grow.
func tinyTrace(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i := range 40 {
		b.WriteString(`{"timestamp":1,"input_length":9,"output_length":1,"hash_ids":[0`)
		for j := range 1 + i/10 {
			b.WriteString("," + string(rune('1'+i%8)) + string(rune('0'+j)))
		}
		b.WriteString("]}\n")
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Simulated caches hit, evict, and every answer of the index agrees with them,
// which replay checks itself.
func TestReplay(t *testing.T) {
	prompts, err := readTrace(tinyTrace(t))
	if err != nil {
		t.Fatal(err)
	}
	turns := simulate(prompts, 3)
	hits, gone, stored := 0, 0, 0
	used := map[int]bool{}
	for _, turn := range turns {
		hits += turn.held
		used[turn.worker] = true
		for _, ev := range turn.events {
			gone += len(ev.Gone)
			stored += len(ev.Blocks)
		}
	}
	if hits == 0 || gone == 0 || stored == 0 || len(used) != 3 {
		t.Fatalf("%d hits, %d removed, %d stored, by %d workers", hits, gone, stored, len(used))
	}
	rows, err := replay(turns, 3)
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.Entries != stored-gone || r.BlocksPerS <= 0 || r.P50US <= 0 || r.BlocksPerSCore > r.BlocksPerS {
		t.Errorf("%+v, want %d entries", r, stored-gone)
	}
}

// A lookup that does not find what the caches hold is found out.
func TestReplayChecks(t *testing.T) {
	prompts, err := readTrace(tinyTrace(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(turns []turn){
		"a wrong depth":    func(turns []turn) { turns[20].held++ },
		"a missing event":  func(turns []turn) { turns[0].events = nil },
		"an event twice":   func(turns []turn) { turns[3].events = append(turns[3].events, turns[3].events...) },
		"a strange parent": func(turns []turn) { turns[0].events[0].HasParent = true },
		"an unknown tier":  func(turns []turn) { turns[0].events[0].Tier = kvevent.NumTiers },
	} {
		turns := simulate(prompts, 3)
		spoil(turns)
		if _, err := replay(turns, 3); err == nil {
			t.Errorf("%s goes unnoticed", name)
		}
	}
}

func TestTraceErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "EOF",
		"{\"hash_ids\":[1]}\n{":       "request 2",
		"{\"hash_ids\":[]}":           "no hash_ids",
		"{\"hash_ids\":[-1]}":         "request 1",
		"{\"hash_ids\":[1]}\nhello\n": "request 2",
	} {
		path := filepath.Join(t.TempDir(), "trace.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readTrace(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	var out bytes.Buffer
	err := Index(context.Background(), IndexConfig{Rounds: 1, Shrink: 1000, Trace: filepath.Join(t.TempDir(), "none"), Output: JSON, Out: &out, Progress: &out})
	if err == nil || !strings.Contains(err.Error(), "the trace") {
		t.Errorf("a trace that is not there: %v", err)
	}
}
