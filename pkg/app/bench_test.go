package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/prompt"
)

// BenchmarkTokenize is what a request costs from its body to its chains, when all
// but its last message was seen before: Qwen3, 128 KB of chat.
func BenchmarkTokenize(b *testing.B) {
	policy := &v1alpha1.RoutingPolicySpec{}
	policy.Tokenizer.InProcess.Source.Directory = &v1alpha1.DirectorySourceSpec{Path: testmodels.Dir(b, "qwen3")}
	policy.Tokenizer.InProcess.Parity.Policy = v1alpha1.ParityOff
	policy.Default()
	layout := block.Layout{Size: policy.BlockSize}
	p, err := configureInProcess(policy, layout, &fakeEngines{}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	m, _, err := p.fetch(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	p.current.Store(m)
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var messages []message
	for i := range 40 {
		messages = append(messages, message{[]string{"user", "assistant"}[i%2], strings.Repeat("The quick brown fox\njumps over the lazy dog. ", 72)})
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		b.Fatal(err)
	}
	var scanned prompt.Body
	var pr extproc.Prompt
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := scanned.Scan(prompt.Chat, body); err != nil {
			b.Fatal(err)
		}
		pr = extproc.Prompt{Kind: prompt.Chat, Body: body, Scanned: &scanned, Seed: block.NewSeed("", ""), Chains: pr.Chains[:0], IDs: pr.IDs[:0]}
		if reason := p.tokenize(&pr); reason != "" {
			b.Fatal(reason)
		}
	}
	b.ReportMetric(float64(pr.Tokens), "tokens")
}
