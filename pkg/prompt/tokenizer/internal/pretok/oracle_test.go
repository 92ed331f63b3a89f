//go:build oracle

package pretok

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
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
	name  string
	s     Scanner
	who   map[string]any
	drops func(piece string) bool // pieces that the engine does not report
	most  int                     // signs in a text
}

func split(pattern any, behavior string, invert bool) map[string]any {
	return map[string]any{"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
}

func questions(t *testing.T) []question {
	t.Helper()
	var all []question
	add := func(name string, s Scanner, ok bool, pre any) {
		if !ok {
			t.Fatalf("%s: not known", name)
		}
		all = append(all, question{name: name, s: s, who: map[string]any{"pre_tokenizer": pre}, most: 20})
	}
	for _, k := range known {
		s, ok := ByRegex(k.pattern)
		add(k.name, s, ok, split(map[string]any{"Regex": k.pattern}, "Isolated", false))
	}
	var splits []any
	for _, p := range deepseekSequence {
		splits = append(splits, split(map[string]any{"Regex": p}, "Isolated", false))
	}
	s, ok := BySequence(deepseekSequence[:])
	add("deepseekSequence", s, ok, map[string]any{"type": "Sequence", "pretokenizers": splits})
	add("byteLevel", ByteLevel(), true,
		map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true})
	for _, individual := range []bool{true, false} {
		add(fmt.Sprint("digits ", individual), Digits(individual), true,
			map[string]any{"type": "Digits", "individual_digits": individual})
	}
	for _, k := range known {
		if s, ok := ByTiktoken(k.pattern); ok && k.tiktoken {
			all = append(all, question{name: k.name + " in tiktoken", s: s, who: map[string]any{"tiktoken": k.pattern}, most: 6})
		}
	}
	return all
}

func TestOracle(t *testing.T) {
	for _, q := range questions(t) {
		t.Run(q.name, func(t *testing.T) {
			o := newOracle(t, q.who)
			random := rand.New(rand.NewPCG(*seedFlag, 7))
			batch := make([]string, 0, 1000)
			compared, cut, bytes := 0, 0, 0
			for compared < *texts {
				batch = batch[:0]
				for range min(cap(batch), *texts-compared) {
					batch = append(batch, randomText(random, q.most))
				}
				for i, want := range o.split(t, batch) {
					got := spans(t, q.s, batch[i], q.drops)
					if !slices.Equal(got, want) {
						t.Fatalf("pieces of %q\n got %v\nwant %v", batch[i], got, want)
					}
					cut += len(want) / 2
					bytes += len(batch[i])
				}
				compared += len(batch)
			}
			t.Logf("%d texts, %d bytes, %d pieces: no difference", compared, bytes, cut)
		})
	}
}

// spans returns the pieces as the oracle reports them.
func spans(t *testing.T, s Scanner, text string, drops func(string) bool) []int {
	t.Helper()
	all, at := []int{}, 0
	for _, p := range pieces(t, s, text) {
		end := at + utf8.RuneCountInString(p)
		if drops == nil || !drops(p) {
			all = append(all, at, end)
		}
		at = end
	}
	return all
}
