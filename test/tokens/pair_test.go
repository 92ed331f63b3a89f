package tokens

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// The patterns of the tiktoken oracles, as hack/oracle/oracle.py puts them
// together.
const (
	contraction = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	upper       = `\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}`
	lower       = `\p{Ll}\p{Lm}\p{Lo}\p{M}`
	lead        = `[^\r\n\p{L}\p{N}]?`
	blanks      = `\s*[\r\n]+|\s+(?!\S)|\s+`
	notHan      = `&&[^\p{Han}]`
)

var patterns = map[string]string{
	"tiktoken-o200k": lead + `[` + upper + `]*[` + lower + `]+` + contraction + `|` +
		lead + `[` + upper + `]+[` + lower + `]*` + contraction + `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + blanks,
	"tiktoken-kimi": `[\p{Han}]+|` + lead + `[` + upper + notHan + `]*[` + lower + notHan + `]+` + contraction + `|` +
		lead + `[` + upper + notHan + `]+[` + lower + notHan + `]*` + contraction + `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + blanks,
}

// pair loads a tokenizer and starts its oracle.
func pair(t *testing.T, name string) (*reference, encoder) {
	t.Helper()
	if !strings.HasPrefix(name, "tiktoken") {
		ours, err := tokenizer.Load(testmodels.Read(t, name, "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		return startReference(t, name), ours
	}
	file := filepath.Join(t.TempDir(), "tiktoken.model")
	ref := startReference(t, name, file)
	ranks, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	special := map[uint32]string{}
	for content, id := range ref.Added {
		special[id] = content
	}
	base, cuts := strings.CutSuffix(name, "-runs")
	cfg := tokenizer.TiktokenConfig{Pattern: patterns[base], Special: special, Chunked: cuts}
	ours, err := tokenizer.LoadTiktoken(ranks, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ref, ours
}
