package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// loaded keeps the real tokenizers, which several tests need.
var loaded sync.Map

// realModel is a real tokenizer and the bytes of heap that it holds.
type realModel struct {
	*tokenizer.Tokenizer
	held int64
}

func model(tb testing.TB, name string) *tokenizer.Tokenizer {
	tb.Helper()
	return load(tb, name).Tokenizer
}

func load(tb testing.TB, name string) realModel {
	tb.Helper()
	if m, ok := loaded.Load(name); ok {
		return m.(realModel)
	}
	before := heap()
	tok, err := tokenizer.Load(modelFile(tb, name, "tokenizer.json"))
	if err != nil {
		tb.Fatal(err)
	}
	m := realModel{tok, heap() - before}
	loaded.Store(name, m)
	return m
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func modelFile(tb testing.TB, name, file string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(testmodels.Dir(tb, name), file))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// golden is what the reference tokenizers gave for some strings.
type golden struct {
	Oracle  string
	Strings []struct {
		Text    string
		Bytes   []byte `json:"base64"` // in place of Text, where that is not UTF-8
		IDs     []uint32
		Special []uint32 `json:"ids_special"`
	}
}

func readGolden(tb testing.TB, name string) golden {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "golden-"+name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		tb.Fatal(err)
	}
	if len(g.Strings) < 150 {
		tb.Fatalf("%d strings, want at least 150", len(g.Strings))
	}
	for i := range g.Strings {
		if g.Strings[i].Bytes != nil {
			g.Strings[i].Text = string(g.Strings[i].Bytes)
		}
	}
	return g
}

func TestGolden(t *testing.T) {
	for _, name := range testmodels.Names() {
		t.Run(name, func(t *testing.T) { checkGolden(t, model(t, name), readGolden(t, name)) })
	}
}

func checkGolden(t *testing.T, tok *tokenizer.Tokenizer, g golden) {
	for _, c := range g.Strings {
		if got := tok.Append(nil, c.Text, false); !slices.Equal(got, c.IDs) {
			t.Errorf("%q: %v, want %v", c.Text, got, c.IDs)
		}
		if got := tok.Append(nil, c.Text, true); !slices.Equal(got, c.Special) {
			t.Errorf("%q with special tokens: %v, want %v", c.Text, got, c.Special)
		}
		if got := segments(t, tok, c.Text); !slices.Equal(got, c.IDs) {
			t.Errorf("%q in segments: %v, want %v", c.Text, got, c.IDs)
		}
	}
}

// segments encodes a text segment by segment.
func segments(t interface{ Fatalf(string, ...any) }, tok *tokenizer.Tokenizer, text string) []uint32 {
	var ids []uint32
	for at := 0; at < len(text); {
		var end int
		if ids, end = tok.AppendSegment(ids, text, at); end <= at {
			t.Fatalf("%q: a segment from %d ends at %d", text, at, end)
		}
		at = end
	}
	return ids
}
