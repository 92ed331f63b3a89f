//go:build oracle

package pretok

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// These tests ask the real engines:
//
//	go test -tags oracle -run Oracle -python path/to/python -texts 1000000 -v .
//
// Python needs tokenizers and tiktoken. With -update the golden file is written
// anew.
var (
	python   = flag.String("python", "python3", "Python with tokenizers and tiktoken")
	texts    = flag.Int("texts", 20000, "random texts for each pattern")
	seedFlag = flag.Uint64("seed", 1, "of the random texts")
	update   = flag.Bool("update", false, "write testdata/golden.json")
)

// oracle is a running hack/unicode/split.py.
type oracle struct {
	in  *json.Encoder
	out *bufio.Reader
}

func newOracle(t *testing.T, who map[string]any) *oracle {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), *python, "../../../../../hack/unicode/split.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	o := &oracle{json.NewEncoder(in), bufio.NewReaderSize(out, 1<<20)}
	if err = o.in.Encode(who); err != nil {
		t.Fatal(err)
	}
	return o
}

// split returns the pieces of texts, as starts and ends in characters.
func (o *oracle) split(t *testing.T, texts []string) [][]int {
	t.Helper()
	if err := o.in.Encode(texts); err != nil {
		t.Fatal(err)
	}
	line, err := o.out.ReadBytes('\n')
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	var spans [][]int
	if err = json.Unmarshal(line, &spans); err != nil {
		t.Fatal(err)
	}
	return spans
}

// question is a scanner and the way to ask an engine for the same.
type question struct {
	name    string
	s       Scanner
	who     map[string]any
	prepare func(text string) string // what the engine does to a text before it cuts
	drops   func(piece string) bool  // pieces that the engine does not report
	most    int                      // signs in a text
}

func split(pattern any, behavior string, invert bool) map[string]any {
	return map[string]any{"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
}

func regexSplit(pattern string) map[string]any {
	return split(map[string]any{"Regex": pattern}, "Isolated", false)
}

// goldenQuestions are those of the golden file.
func goldenQuestions(t *testing.T) []question {
	t.Helper()
	var splits []any
	for _, p := range deepseekSequence {
		splits = append(splits, regexSplit(p))
	}
	pre := map[string]any{
		"deepseek sequence": map[string]any{"type": "Sequence", "pretokenizers": splits},
		"byteLevel":         map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
		"eachDigit":         map[string]any{"type": "Digits", "individual_digits": true},
		"digits":            map[string]any{"type": "Digits", "individual_digits": false},
	}
	who := map[string]map[string]any{}
	for _, k := range known {
		pre[k.name] = regexSplit(k.pattern)
		who[k.name+" in tiktoken"] = map[string]any{"tiktoken": k.pattern}
	}
	for name, config := range pre {
		who[name] = map[string]any{"pre_tokenizer": config}
	}
	scanners := named(t)
	var all []question
	for _, name := range slices.Sorted(maps.Keys(scanners)) {
		if who[name] == nil {
			t.Fatalf("%s: whom to ask?", name)
		}
		q := question{name: name, s: scanners[name], who: who[name], most: 20}
		if q.who["tiktoken"] != nil {
			q.most = 6 // all parts of the texts go into a vocabulary
		}
		all = append(all, q)
	}
	return all
}

// literalQuestions are those about splits on strings.
func literalQuestions(t *testing.T) []question {
	t.Helper()
	var all []question
	add := func(name, mark, behavior string, invert bool, pre map[string]any) *question {
		b, ok := ParseBehavior(behavior)
		l, err := NewLiteral(mark, b, invert)
		if err != nil || !ok {
			t.Fatal(err, ok)
		}
		all = append(all, question{name: name, s: l, who: map[string]any{"pre_tokenizer": pre}, drops: l.Drops, most: 20})
		return &all[len(all)-1]
	}
	for _, behavior := range []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"} {
		for _, mark := range []string{" ", "\u2581", "/", "''"} {
			for _, invert := range []bool{false, true} {
				add(fmt.Sprintf("%s %q %v", behavior, mark, invert), mark, behavior, invert,
					split(map[string]any{"String": mark}, behavior, invert))
			}
		}
	}
	q := add("metaspace", "\u2581", "MergedWithNext", false,
		map[string]any{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": true})
	q.prepare = func(text string) string { return strings.ReplaceAll(text, " ", "\u2581") }
	return all
}

func TestOracle(t *testing.T) {
	for _, q := range append(goldenQuestions(t), literalQuestions(t)...) {
		t.Run(q.name, func(t *testing.T) {
			o := newOracle(t, q.who)
			random := rand.New(rand.NewPCG(*seedFlag, 7))
			batch := make([]string, 0, 1000)
			compared, cut, size := 0, 0, 0
			for compared < *texts {
				batch = batch[:0]
				for range min(cap(batch), *texts-compared) {
					batch = append(batch, randomText(random, q.most))
				}
				for i, want := range o.split(t, batch) {
					got := q.spans(t, batch[i])
					if !slices.Equal(got, want) {
						t.Fatalf("pieces of %q\n got %v\nwant %v", batch[i], got, want)
					}
					cut += len(want) / 2
					size += len(batch[i])
				}
				compared += len(batch)
			}
			t.Logf("%d texts, %d bytes, %d pieces: no difference", compared, size, cut)
		})
	}
}

// spans returns the pieces as the oracle reports them.
func (q question) spans(t *testing.T, text string) []int {
	t.Helper()
	if q.prepare != nil {
		text = q.prepare(text)
	}
	all, at := []int{}, 0
	for _, p := range pieces(t, q.s, text) {
		end := at + utf8.RuneCountInString(p)
		if q.drops == nil || !q.drops(p) {
			all = append(all, at, end)
		}
		at = end
	}
	return all
}

// TestOracleGolden holds the golden file to the engines, or writes it.
func TestOracleGolden(t *testing.T) {
	g := golden{Texts: goldenTexts, Ends: map[string][][]int{}}
	random := rand.New(rand.NewPCG(8, 9))
	for range 20 {
		g.Texts = append(g.Texts, randomText(random, 20))
	}
	for _, q := range goldenQuestions(t) {
		for _, spans := range newOracle(t, q.who).split(t, g.Texts) {
			ends := []int{}
			for i := 1; i < len(spans); i += 2 {
				ends = append(ends, spans[i])
			}
			g.Ends[q.name] = append(g.Ends[q.name], ends)
		}
	}
	want, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	want = bytes.ReplaceAll(want, []byte("]],"), []byte("]],\n")) // a line for each scanner
	if *update {
		if err = os.WriteFile(goldenFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(goldenFile); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the engines do (%v): run with -update", goldenFile, err)
	}
}
