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
	// close lets it end.
	close func() error
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
	o := &oracle{json.NewEncoder(in), bufio.NewReaderSize(out, 1<<20), in.Close}
	t.Cleanup(func() {
		_ = o.close() // it may be closed
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
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

// TestOracleCombinations asks about combinations of parts that nobody may use.
func TestOracleCombinations(t *testing.T) {
	random := rand.New(rand.NewPCG(*seedFlag, 14))
	compared, patterns := 0, 0
	for compared < *texts {
		pattern, ok := combined(random.IntN)
		if !ok {
			continue
		}
		s, ok := ByRegex(pattern)
		if !ok {
			t.Fatalf("not known: %s", pattern)
		}
		q := question{s: s}
		batch := make([]string, 2000)
		for i := range batch {
			batch[i] = randomText(random, 20)
		}
		o := newOracle(t, map[string]any{"pre_tokenizer": regexSplit(pattern)})
		for i, want := range o.split(t, batch) {
			if got := q.spans(t, batch[i]); !slices.Equal(got, want) {
				t.Fatalf("%s: pieces of %q\n got %v\nwant %v", pattern, batch[i], got, want)
			}
		}
		if err := o.close(); err != nil {
			t.Fatal(err)
		}
		compared += len(batch)
		patterns++
	}
	t.Logf("%d texts, %d patterns: no difference", compared, patterns)
}

// goldenTexts are what people and programs write, and what is hard in it.
var goldenTexts = []string{
	"Hello, world! It's 2024; they'LL see, WE'RE not I'M.",
	"don't DON'T don\u2019t 's's'S 'T'ill rock'n'roll l'l 're'Ve '\u017f a'\u017f",
	"HTTPServer parseJSON2XML iPhone15Pro McDonald NASA's camelCaseABC \u01c5ungla",
	"1234567 12,345.678 1\u00b2\u00b3 \u0661\u0662\u0663\u0664 \u2160\u2161 \u4e00\u3007\u4e8c \uff11\uff12\uff13\uff14 0x1F 3.14e-10",
	"  leading, trailing  ", " \n \n\n  x\t\ty \r\n\r\n z  \n", "\n\n\n", "   ", "a\n  ", "a \u00a0\u3000 b\u2003\u2003c\u0085d\u2028e\u200bf\ufeffg\u180eh",
	"func main() {\n\tfmt.Println(\"hi\")  // TODO: x\n}\n\n\n\nif __name__ == '__main__':\n    run(*args, **kw)\n",
	"https://example.org/a/b//c?d=e&f=%20g#h /usr/bin/\n//\n/ C:\\x\\y <|im_start|>user\n</s>",
	"\u4eba\u5de5\u667a\u80fd\uff0c\u4f60\u597d\uff01GPT-4\u6a21\u578b\u3002 \u4e2dABC \u4e2dABCd a\u4e2db \u2e80\u2e81\u4e2d \u3005\u303b \U00020000\U0002f800",
	"\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c\uff01\u30ab\u30bf\u30ab\u30ca\u30fb\u30fc\u309b\u3099\u3040\u30a0 \uff76\uff9e\uff77 x\u30ab1\u30ab",
	"\uc548\ub155\ud558\uc138\uc694 \u1112\u1161\u11ab \u0645\u0631\u062d\u0628\u0627\u064b \u0628\u0650\u0633\u0652\u0645\u0650 \u060c \u0661",
	"\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a \u0e40\u0e25\u0e48\u0e21 \u0e51\u0e52 \u0928\u092e\u0938\u094d\u0924\u0947 \u0915\u094d\u0937 \u0967\u0968",
	"e\u0301te\u0301 E\u0301TE\u0301 \u0301 \u0301a .\u0301. A\u0301B \u0301\u0301 1\u0301 \u20dd x\u20dd",
	"\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea\u2764\ufe0f \U0001f44d\U0001f3fd! a\u200db",
	"\x00a\x00\x00b\x01\x02 \x1b[31m\x7f\u00ad\u202e\ue000\U000e0041\U0010ffff\ufffd\u0378z",
	"\u00dcber Stra\u00dfe \u0130stanbul \u00aa\u00ba \ufb01\ufb06 \u00b5m \u212a \U0001d400\U0001d41a\U0001d7ce \u10d0\u1c90 \uab70\u13a0",
	"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ !a \"b #C $d (e\u00e9 _f ~g \u2019h \u00a1i \u20acj ++k +\u4e2d",
	strings.Repeat("a", 100) + strings.Repeat(" ", 100) + strings.Repeat("\n", 10) + strings.Repeat("1", 10) + strings.Repeat("!", 20),
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
