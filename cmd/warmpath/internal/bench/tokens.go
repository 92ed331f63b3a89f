package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// TokensConfig says how Tokens measures.
type TokensConfig struct {
	Models     string        // folder with NAME/tokenizer.json and NAME/tokenizer_config.json
	Texts      string        // folder with TEXT.txt, real text
	Tokenizers []string      // names below Models; all of them when empty
	Parts      []string      // of [TokenParts]; all of them when empty
	Dump       string        // folder for the texts and ids that are measured; empty writes none
	Duration   time.Duration // of one measurement, at least
	Rounds     int           // the median counts
	Shrink     int           // divides the workload, for a quick look; 1 is all of it
	Output     Output
	Out        io.Writer
	Progress   io.Writer
}

// TokenParts are the parts of the benchmark.
var TokenParts = []string{"load", "encode", "first", "prompt"}

// textNames are the texts to encode, and sizes how much of each, in tokens.
var (
	textNames = []string{"english", "code", "chinese"}
	sizes     = []int{10_000, 100_000}
)

// Tokens measures the way from prompts to tokens and block hashes, on one core:
// loading tokenizers, encoding texts, and whole request bodies with and without
// the memo. Times are CPU time, which others on the machine do not add to.
func Tokens(ctx context.Context, cfg TokensConfig) error {
	names := cfg.Tokenizers
	if len(names) == 0 {
		found, err := filepath.Glob(filepath.Join(cfg.Models, "*", "tokenizer.json"))
		if err != nil {
			return fmt.Errorf("--models: %w", err)
		}
		if len(found) == 0 {
			return fmt.Errorf("--models: there is no %s", filepath.Join(cfg.Models, "NAME", "tokenizer.json"))
		}
		for _, file := range found {
			names = append(names, filepath.Base(filepath.Dir(file)))
		}
	}
	texts, err := readTexts(cfg.Texts)
	if err != nil {
		return err
	}
	// One thread, as what it is compared with.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var rows []TokenRow
	for _, name := range names {
		more, err := measureTokenizer(ctx, cfg, name, texts)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		rows = append(rows, more...)
	}
	return writeRows(cfg.Out, cfg.Output, tokenColumns, rows)
}

func readTexts(dir string) (map[string]string, error) {
	texts := map[string]string{}
	for _, name := range textNames {
		data, err := os.ReadFile(filepath.Join(dir, name+".txt"))
		if err != nil {
			return nil, fmt.Errorf("a text to encode: %w", err)
		}
		texts[name] = string(data)
	}
	return texts, nil
}

// subject is a tokenizer under measurement.
type subject struct {
	TokensConfig
	name  string
	model *tokenizer.Tokenizer
	cuts  []textCut
	texts map[string]string
}

// textCut is the start of a text, as long as the case asks.
type textCut struct {
	text, label string
	part        string
	ids         int // what the part has
}

// measureTokenizer measures all cases of one tokenizer, round by round.
func measureTokenizer(ctx context.Context, cfg TokensConfig, name string, texts map[string]string) ([]TokenRow, error) {
	fmt.Fprintf(cfg.Progress, "%s …\n", name)
	s := subject{TokensConfig: cfg, name: name, texts: texts}
	var err error
	if s.model, err = s.load(); err != nil {
		return nil, err
	}
	if err := s.cut(); err != nil {
		return nil, err
	}
	if cfg.Dump != "" {
		if err := s.dump(); err != nil {
			return nil, err
		}
	}
	parts := map[string]func(context.Context) ([]TokenRow, error){
		"load": s.loading, "encode": s.encoding, "first": s.firsts, "prompt": s.prompts,
	}
	var all [][]TokenRow
	for range cfg.Rounds {
		var rows []TokenRow
		for _, part := range TokenParts {
			if len(cfg.Parts) > 0 && !slices.Contains(cfg.Parts, part) {
				continue
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			more, err := parts[part](ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", part, err)
			}
			rows = append(rows, more...)
		}
		all = append(all, rows)
	}
	return tokenMedians(all), nil
}

func (s *subject) load() (*tokenizer.Tokenizer, error) {
	data, err := os.ReadFile(filepath.Join(s.Models, s.name, "tokenizer.json"))
	if err != nil {
		return nil, err
	}
	return tokenizer.Load(data)
}

// cut finds how much of each text has as many tokens as the cases ask for.
func (s *subject) cut() error {
	var ids []uint32
	for _, text := range textNames {
		for _, size := range sizes {
			label := fmt.Sprintf("%dk", size/1000)
			whole, size := s.texts[text], max(1, size/s.Shrink)
			count := func(n int) int {
				ids = s.model.Append(ids[:0], whole[:n], false)
				return len(ids)
			}
			if n := count(len(whole)); n < size {
				return fmt.Errorf("%s.txt has %d tokens, the case needs %d", text, n, size)
			}
			low, high := 0, len(whole) // count(low) < size <= count(high)
			for high-low > 1 {
				if middle := (low + high) / 2; count(middle) < size {
					low = middle
				} else {
					high = middle
				}
			}
			for high < len(whole) && whole[high]&0xC0 == 0x80 { // to the end of a rune
				high++
			}
			s.cuts = append(s.cuts, textCut{text, label, whole[:high], count(high)})
		}
	}
	return nil
}

// dump writes what is measured, for others to measure too: TOKENIZER-TEXT-SIZE.txt
// and, beside it, its token ids as JSON.
func (s *subject) dump() error {
	if err := os.MkdirAll(s.Dump, 0o755); err != nil {
		return err
	}
	for _, c := range s.cuts {
		file := filepath.Join(s.Dump, s.name+"-"+c.text+"-"+c.label)
		ids, err := json.Marshal(s.model.Append(nil, c.part, false))
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(file+".txt", []byte(c.part), 0o644), os.WriteFile(file+".json", ids, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func (s *subject) row(name string, c textCut) TokenRow {
	return TokenRow{Case: name, Tokenizer: s.name, Text: c.text, Tokens: c.ids, Bytes: len(c.part)}
}

// encoding measures encoding a text again and again.
func (s *subject) encoding(context.Context) ([]TokenRow, error) {
	var rows []TokenRow
	ids := make([]uint32, 0, 2*slices.Max(sizes))
	for _, c := range s.cuts {
		r := s.row("encode-"+c.label, c)
		call, allocs := s.again(func() { ids = s.model.Append(ids[:0], c.part, false) })
		if len(ids) != c.ids {
			return nil, fmt.Errorf("%s: %d tokens now, %d before", c.text, len(ids), c.ids)
		}
		r.Allocs = allocs
		r.speed(call)
		rows = append(rows, r)
	}
	return rows, nil
}

// firsts measures the first text that a tokenizer encodes.
func (s *subject) firsts(context.Context) ([]TokenRow, error) {
	var rows []TokenRow
	ids := make([]uint32, 0, 2*slices.Max(sizes))
	for _, c := range s.cuts {
		fresh, err := s.load()
		if err != nil {
			return nil, err
		}
		runtime.GC()
		start := cpuTime()
		ids = fresh.Append(ids[:0], c.part, false)
		took := cpuTime() - start
		r := s.row("encode-"+c.label+"-first", c)
		r.speed(us(took))
		rows = append(rows, r)
	}
	return rows, nil
}

// again calls f for the time of a measurement, at least five times, and returns
// the median of a call's CPU time, in microseconds, and the allocations of one.
func (s *subject) again(f func()) (callUS, allocs float64) {
	f() // buffers grow now
	runtime.GC()
	var all latencies
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for start := time.Now(); len(all) < 5 || time.Since(start) < s.Duration; {
		from := cpuTime()
		f()
		all = append(all, cpuTime()-from)
	}
	runtime.ReadMemStats(&after)
	slices.Sort(all)
	// The list of times grows too, now and then.
	return us(all[len(all)/2]), float64(int(after.Mallocs-before.Mallocs) / len(all))
}
