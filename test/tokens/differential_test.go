package tokens

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	stringsFlag = flag.Int("strings", 20_000, "strings to compare per tokenizer")
	seedFlag    = flag.Uint64("seed", 1, "which strings")
	onlyFlag    = flag.String("only", "", "compare this tokenizer alone")
)

const (
	batchSize    = 1000
	mostReported = 20 // mismatches that are made small and shown
)

// encoder is what a tokenizer can do, as this test needs it.
type encoder interface {
	Append(dst []uint32, text string, addSpecial bool) []uint32
	AppendSegment(dst []uint32, text string, from int) (ids []uint32, end int)
	Prefix(addSpecial bool) []uint32
	Suffix(addSpecial bool) []uint32
}

// names are the tokenizers to compare.
var names = []string{"qwen3", "llama3_1", "deepseek_v3", "gptoss", "gemma3", "tiktoken-o200k", "tiktoken-kimi", cutName}

// TestTokenizers compares every tokenizer with its oracle.
func TestTokenizers(t *testing.T) {
	seeds := seedTexts(t)
	for _, name := range names {
		if *onlyFlag != "" && *onlyFlag != name {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time goes to the oracles
			ref, ours := pair(t, name)
			if name != cutName { // short as most goldens are, they are never cut
				t.Run("goldens", func(t *testing.T) { testGoldens(t, name, ours, ref) })
			}
			t.Run("long", func(t *testing.T) { testLong(t, name, ours, ref) })
			n := *stringsFlag
			if name == cutName {
				n = min(n, batchSize) // most strings are too short to be cut: tiktoken-kimi is enough
			}
			t.Run("differential", func(t *testing.T) { testDifferential(t, name, n, ours, ref, seeds) })
		})
	}
}

// testDifferential compares the ids of n odd strings, one by one.
func testDifferential(t *testing.T, name string, n int, ours encoder, ref *reference, seeds []string) {
	c := comparison{ours: ours, ref: ref}
	g := newGenerator(*seedFlag, ref, seeds)
	next := func(size int) []item {
		items := make([]item, size)
		for i := range items {
			items[i] = item{g.next(), g.IntN(4) == 0}
		}
		return items
	}
	start := time.Now()
	items := next(min(batchSize, n))
	for left := n; left > 0; left -= batchSize {
		var following []item
		answer := c.start(t, items)
		c.encode(items) // while the oracle works
		if left > batchSize {
			following = next(min(batchSize, left-batchSize))
		}
		c.compare(t, items, answer())
		items = following
		if testing.Verbose() && time.Since(start) > time.Minute {
			t.Logf("%s: %d strings so far, %d mismatches", name, c.strings, c.mismatches)
			start = time.Now()
		}
	}
	t.Logf("%s: %d strings, %d bytes, %d tokens, %d with cuts, %d mismatches; seed %d, oracle %s",
		name, c.strings, c.bytes, c.tokens, c.cuts, c.mismatches, *seedFlag, ref.Oracle)
	if c.strings != n {
		t.Errorf("compared %d strings, want %d", c.strings, n)
	}
	if c.cuts == 0 && n >= batchSize {
		t.Error("no string could be cut")
	}
}

// testLong compares strings that are one long run.
func testLong(t *testing.T, name string, ours encoder, ref *reference) {
	size := 20_000
	if strings.HasPrefix(name, "tiktoken") {
		size = 3_000 // its time grows with the square of a run's length
	}
	var items []item
	for _, unit := range []string{
		"a", "ab", "thequick", "é", "中", "哈", "あ", "😀", " ", "\n", "\t", " \n", "\r\n", "\u3000", "=", "-", "0", "12", "\u0301",
		"ー", "A", "aA", "Aa", "▁", "\x00", "\xff", "กข", "'s", "/\n", "x ",
	} {
		items = append(items, item{strings.Repeat(unit, size/len(unit)), false})
	}
	if name == cutName {
		items = append(items, cutItems()...)
	}
	c := comparison{ours: ours, ref: ref, whole: true}
	answer := c.start(t, items)
	c.encode(items)
	c.compare(t, items, answer())
}

// cutName is the tokenizer that cuts long texts and runs before anything else.
const cutName = "tiktoken-kimi-runs"

// cutItems are strings with cuts in them. Most are digits, of which tiktoken makes
// short pieces.
func cutItems() []item {
	const run, text = 25_000, 400_000
	zeros := func(n int) string { return strings.Repeat("0", n) }
	var items []item
	for _, s := range []string{
		zeros(run), zeros(run + 1), zeros(2*run + 1), zeros(run-1) + " " + zeros(run+2), " " + zeros(run+1) + " ",
		zeros(run-1) + "\x1c" + zeros(run), zeros(run-1) + "\x1f1" + zeros(run), zeros(run-1) + "\ufeff" + zeros(run), zeros(run-1) + "\u0085" + zeros(run),
		zeros(run-1) + "<|im_end|>" + zeros(run+1), strings.Repeat("٣", run+5), zeros(run-1) + "\xff\xff" + zeros(5),
		strings.Repeat(" ", run+3) + "x", strings.Repeat("\n", run+3) + "x", strings.Repeat("\u3000", run/4) + strings.Repeat(" ", run),
		strings.Repeat("12 ", text/3) + "12345678", strings.Repeat("1234 ", text/5) + "<|im_end|>" + strings.Repeat("1 3", text/3+2) + "77",
	} {
		items = append(items, item{s, false})
	}
	return items
}

// seedTexts are what pieces of strings are cut from: our documents, our code and
// the texts of the golden files.
func seedTexts(t *testing.T) []string {
	t.Helper()
	var texts []string
	for _, pattern := range []string{"docs/*.md", "pkg/prompt/*.go", "hack/oracle/*.py", "pkg/prompt/tokenizer/testdata/golden-*.json"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s (%v)", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(data))
		}
	}
	return texts
}

// comparison counts what was compared.
type comparison struct {
	ours  encoder
	ref   *reference
	whole bool // a mismatch is shown as it is

	got                                      [][]uint32
	strings, bytes, tokens, cuts, mismatches int
	unanswered                               int // where the oracle broke down
}

// start asks the oracle and returns the function that waits for its answer.
func (c *comparison) start(t *testing.T, items []item) (answer func() [][]uint32) {
	var ids [][]uint32
	var failed error
	var done sync.WaitGroup
	done.Go(func() {
		if err := c.ref.send(items); err != nil {
			failed = err
		}
	})
	var received error
	done.Go(func() { ids, received = c.ref.receive(len(items)) })
	return func() [][]uint32 {
		t.Helper()
		done.Wait()
		if failed == nil {
			failed = received
		}
		if failed != nil {
			c.ref.fatal(t, failed)
		}
		return ids
	}
}

// encode encodes all items, from several goroutines at once.
func (c *comparison) encode(items []item) {
	c.got = make([][]uint32, len(items))
	var workers sync.WaitGroup
	for w := range max(2, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := w; i < len(items); i += max(2, runtime.GOMAXPROCS(0)) {
				c.got[i] = c.ours.Append(nil, items[i].text, items[i].special)
			}
		})
	}
	workers.Wait()
}

// compare checks the answers of a batch, that segments make the same ids, and that
// what is before a cut and what is behind do not know each other.
func (c *comparison) compare(t *testing.T, items []item, want [][]uint32) {
	t.Helper()
	for i, it := range items {
		if want[i] == nil {
			c.unanswered++
			continue
		}
		c.strings++
		c.bytes += len(it.text)
		c.tokens += len(want[i])
		if !slices.Equal(c.got[i], want[i]) {
			c.mismatches++
			c.report(t, it, c.got[i], want[i])
			continue
		}
		ids, cuts, broken := c.segments(it)
		if broken != "" || !slices.Equal(ids, want[i]) {
			c.mismatches++
			t.Errorf("%+q (special %v): in segments %s %s", shorten(it.text), it.special, broken, difference(ids, want[i]))
			continue
		}
		if len(cuts) > 0 {
			c.cuts++
			c.checkCut(t, it.text[:cuts[c.cuts%len(cuts)]], items[(i+1)%len(items)].text)
		}
	}
}

// checkCut checks that a text which ends with a cut keeps its ids when more
// follows, and that the rest is encoded as after the cut.
func (c *comparison) checkCut(t *testing.T, before, behind string) {
	t.Helper()
	whole := before + behind
	want := c.ours.Append(nil, whole, false)
	got := c.ours.Append(nil, before, false)
	for at := len(before); at < len(whole); {
		got, at = c.ours.AppendSegment(got, whole, at)
	}
	if !slices.Equal(got, want) {
		c.mismatches++
		t.Errorf("%+q cut before %+q: %s", shorten(before), shorten(behind), difference(got, want))
	}
}

// segments encodes a text piece by piece. cuts are the ends but the last.
func (c *comparison) segments(it item) (ids []uint32, cuts []int, broken string) {
	ids = append(ids, c.ours.Prefix(it.special)...)
	for at := 0; at < len(it.text); {
		var end int
		ids, end = c.ours.AppendSegment(ids, it.text, at)
		if end <= at || end > len(it.text) {
			return ids, nil, "an end that is none:"
		}
		if at = end; end < len(it.text) {
			cuts = append(cuts, end)
		}
	}
	return append(ids, c.ours.Suffix(it.special)...), cuts, ""
}

// report shows a mismatch, as small as it can be made.
func (c *comparison) report(t *testing.T, it item, got, want []uint32) {
	t.Helper()
	if c.mismatches > mostReported {
		return
	}
	if !c.whole {
		it = c.shrink(t, it)
		got, want = c.ours.Append(nil, it.text, it.special), c.ref.ask(t, []item{it})[0]
	}
	t.Errorf("%+q (special %v): %s", shorten(it.text), it.special, difference(got, want))
}

func shorten(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// shrink removes what a mismatch does not need.
func (c *comparison) shrink(t *testing.T, it item) item {
	t.Helper()
	for size := (len(it.text) + 1) / 2; size > 0; {
		var tries []item
		for from := 0; from < len(it.text); from += size {
			tries = append(tries, item{it.text[:from] + it.text[min(len(it.text), from+size):], it.special})
		}
		smaller := -1
		for i, want := range c.ref.ask(t, tries) {
			if !slices.Equal(c.ours.Append(nil, tries[i].text, it.special), want) {
				smaller = i
				break
			}
		}
		switch {
		case smaller >= 0:
			it = tries[smaller]
			size = min(size, max(1, len(it.text)/2))
		default:
			size /= 2
		}
		if it.text == "" {
			break
		}
	}
	return it
}
