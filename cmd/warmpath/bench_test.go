package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
)

// TestMain lets the benchmarks start their other processes from this executable,
// as they do from the real one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		main()
		return
	}
	os.Exit(m.Run())
}

// run runs a command and returns the rows of its JSON.
func run(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	var out, progress bytes.Buffer
	c := command()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&progress)
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &progress)
	}
	var result struct{ Rows []map[string]any }
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &out)
	}
	return result.Rows
}

// common are the fields that every case has.
var common = []string{"name", "workers", "holders", "entries", "cores"}

// check compares the cases with those that must be there, and the fields of each.
func check(t *testing.T, rows []map[string]any, want map[string][]string) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range rows {
		name := fmt.Sprint(r["name"])
		seen[name] = true
		fields, known := want[name]
		if !known {
			t.Errorf("an unknown case: %v", r)
		}
		for _, f := range slices.Concat(common, fields) {
			if _, ok := r[f]; !ok {
				t.Errorf("%s has no %s: %v", name, f, r)
			}
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("no case %s", name)
		}
	}
}

func TestBenchIndex(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	line := `{"timestamp":0,"input_length":1000,"output_length":1,"hash_ids":[%d,%d]}` + "\n"
	var text strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, line, i%20, 1000+i%150)
	}
	if err := os.WriteFile(trace, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	speed, times := []string{"blocks_per_s", "cpu_us_per_block"}, []string{"p50_us", "p99_us"}
	want := map[string][]string{
		"hash": times, "hash-chains": times,
		"gc-pause":        {"p99_us", "max_us", "baseline_p99_us", "baseline_max_us"},
		"replay-mooncake": append([]string{"blocks_per_s", "blocks_per_s_core"}, times...),
		"match-1000":      times, "match-1000-writer": times,
	}
	for _, suffix := range []string{"", "-branchy"} {
		for _, name := range []string{"apply", "apply-wire", "apply-vllm"} {
			want[name+suffix] = speed
		}
		for _, name := range []string{"match-128", "match-128-writer", "match-128-drop", "drop", "snapshot"} {
			want[name+suffix] = times
		}
		want["memory"+suffix] = []string{"bytes_per_entry"}
		want["backlog"+suffix] = append([]string{"lookups", "max_us"}, times...)
	}
	check(t, run(t, "bench", "index", "--rounds", "1", "--shrink", "200", "--trace", trace, "-o", "json"), want)
}

func TestBenchEvents(t *testing.T) {
	fields := []string{"blocks_per_s", "messages_per_s", "cpu_us_per_block"}
	latency := append([]string{"p50_us", "p99_us", "max_us"}, fields...)
	rows := run(t, "bench", "events", "--rounds", "1", "--publishers", "3", "--duration", "100ms", "--rate", "20000", "-o", "json")
	check(t, rows, map[string][]string{
		"events-latency": latency, "events-sustained": fields, "events-flood": fields,
		"events-latency-map": latency, "events-sustained-map": fields, "events-flood-map": fields,
	})
}

func TestBenchEventsJetStream(t *testing.T) {
	rows := run(t, "bench", "events", "--rounds", "1", "--publishers", "3", "--duration", "100ms", "--rate", "20000", "--payloads", "array", "--jetstream", "-o", "json")
	fields := []string{"blocks_per_s", "messages_per_s", "cpu_us_per_block"}
	check(t, rows, map[string][]string{
		"events-latency-jetstream": append([]string{"p50_us", "p99_us"}, fields...), "events-sustained-jetstream": fields, "events-flood-jetstream": fields,
	})
}

func TestBenchTokens(t *testing.T) {
	models, texts := t.TempDir(), t.TempDir()
	small := filepath.Join(models, "small") // a large one takes half a minute with the race detector
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	testmodels.WriteSmall(t, small, testmodels.ChatML)
	for _, name := range []string{"english", "code", "chinese"} {
		text := strings.Repeat("The text to be encoded, 中文也有。\n\tfor i := range n { sum += i }\n", 2000)
		if err := os.WriteFile(filepath.Join(texts, name+".txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dump := t.TempDir()
	rows := run(t, "bench", "tokens", "--models", models, "--texts", texts,
		"--rounds", "1", "--shrink", "10", "--duration", "1ms", "--dump", dump, "-o", "json")
	seen := map[string]int{}
	for _, r := range rows {
		seen[fmt.Sprint(r["case"])]++
		for _, f := range []string{"case", "tokenizer", "text", "tokens", "tokens_per_s", "us"} {
			if v, ok := r[f]; !ok || v == 0.0 {
				t.Errorf("%v has no %s", r, f)
			}
		}
	}
	want := map[string]int{
		"load": 1, "encode-10k": 3, "encode-100k": 3, "encode-10k-first": 3, "encode-100k-first": 3,
		"conversation-20-turns": 1, "body-128k-cold": 1, "body-128k-warm": 1,
	}
	if !maps.Equal(seen, want) {
		t.Errorf("cases %v, want %v", seen, want)
	}
	if files, err := os.ReadDir(dump); err != nil || len(files) != 12 {
		t.Errorf("%d files dumped, want a text and its ids for each of 6 (%v)", len(files), err)
	}
}

func TestBenchFlags(t *testing.T) {
	for _, args := range [][]string{
		{"index", "-o", "yaml"},
		{"index", "--rounds", "0"},
		{"index", "--shrink", "0"},
		{"events", "-o", "yaml"},
		{"events", "--publishers", "0"},
		{"events", "--duration", "0s"},
		{"events", "--rate", "-1"},
		{"events", "--payloads", "list"},
		{"tokens", "--models", "x"},
		{"tokens", "--parts", "all", "--models", "x", "--texts", "x"},
		{"tokens", "--models", "nothere", "--texts", "x"},
		{"tokens", "--rounds", "0", "--models", "x", "--texts", "x"},
	} {
		c := command()
		c.SetArgs(append([]string{"bench"}, args...))
		c.SetOut(&bytes.Buffer{})
		c.SetErr(&bytes.Buffer{})
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), args[1]) && args[1] != "-o" {
			t.Errorf("%v: %v", args, err)
		}
	}
}
