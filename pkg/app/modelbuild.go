package app

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// builder makes models of their files.
type builder struct {
	layout       block.Layout
	templateFile string // in the place of the model's template
	options      chat.Options
	zone         *time.Location
	memoBytes    int64
	policy       parity.Policy
	usual        bool // the way of completions until an engine tells
}

func newBuilder(policy *v1alpha1.RoutingPolicySpec, layout block.Layout) (*builder, error) {
	spec := &policy.Tokenizer.InProcess
	zone, err := time.LoadLocation(spec.ChatTemplate.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: time zone: %w", err)
	}
	since13 := spec.Engine == v1alpha1.EngineDynamo13
	dynamo := dynamoStyle(policy)
	b := &builder{
		layout: layout, templateFile: spec.ChatTemplate.File, zone: zone, memoBytes: spec.MemoBytes,
		policy: map[v1alpha1.ParityPolicy]parity.Policy{
			v1alpha1.ParityWhenAvailable: parity.WhenAvailable,
			v1alpha1.ParityRequired:      parity.Required,
			v1alpha1.ParityOff:           parity.Off,
		}[spec.Parity.Policy],
		usual: spec.AddSpecialTokens == v1alpha1.SpecialAlways || spec.AddSpecialTokens == v1alpha1.SpecialAuto && !dynamo,
		options: chat.Options{
			Kwargs: []byte(spec.ChatTemplate.Kwargs),
			Format: map[v1alpha1.ContentFormat]chat.Format{
				v1alpha1.ContentAuto:   chat.FormatAuto,
				v1alpha1.ContentString: chat.FormatText,
				v1alpha1.ContentOpenAI: chat.FormatParts,
			}[spec.ChatTemplate.ContentFormat],
			DropTools: dynamo,
			Since13:   since13,
			Limits: chat.Limits{
				Output: int(spec.Limits.OutputBytes), Messages: spec.Limits.Messages,
				Watch: watch(spec.Limits.Time.Duration),
			},
		},
	}
	if dynamo {
		b.options.Style = chat.Dynamo
	}
	if drop := spec.ChatTemplate.DropTools; drop != nil {
		b.options.DropTools = *drop
	}
	return b, nil
}

// dynamoStyle says whether prompts are made as Dynamo makes them.
func dynamoStyle(policy *v1alpha1.RoutingPolicySpec) bool {
	spec := &policy.Tokenizer.InProcess
	switch spec.Engine {
	case v1alpha1.EngineDynamo, v1alpha1.EngineDynamo13:
		return true
	case v1alpha1.EngineAuto:
		return spec.Source.Dynamo != nil || policy.Handoff.Preset == v1alpha1.HandoffDynamo
	default:
		return false
	}
}

// watch returns what tells a rendering whether it still has time.
func watch(limit time.Duration) func() func() bool {
	return func() func() bool {
		start := time.Now()
		return func() bool { return time.Since(start) < limit }
	}
}

// build makes the files ready. Its errors name what is not supported.
func (b *builder) build(f *modelfiles.Files) (*model, error) {
	config, err := readConfig(f.Config)
	if err != nil {
		return nil, err
	}
	var tokens *tokenizer.Tokenizer
	if f.Tokenizer != nil {
		tokens, err = tokenizer.Load(f.Tokenizer)
	} else {
		tokens, err = loadTiktoken(f)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(f.TiktokenName, "tokenizer.json"), err)
	}
	m := &model{
		source: f.Source, revision: f.Revision, zone: b.zone, maxText: b.options.Limits.Output,
		gate: parity.NewGate(b.policy, b.usual),
	}
	template, err := b.template(m, f, &config)
	if err != nil {
		return nil, err
	}
	m.encoder, err = encoder.New(encoder.Config{
		Tokenizer: tokens, Template: template, Layout: b.layout, MemoBytes: b.memoBytes, Random: rand.Uint64(),
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// template returns the chat template of a model, nil where there is none that can
// be used: that keeps chats out and nothing else. The error is of a file that
// cannot be read.
func (b *builder) template(m *model, f *modelfiles.Files, config *tokenizerConfig) (t encoder.Template, err error) {
	source, err := templateOf(f, config, b.templateFile)
	if err != nil {
		return nil, err
	}
	if b.templateFile != "" { // another version whenever it changes
		sum := sha256.Sum256([]byte(source))
		m.revision += " template:" + hex.EncodeToString(sum[:8])
	}
	t, m.noChats = b.compile(source, config, f.Since13)
	return t, nil
}

// compile makes a chat template ready, or says why it cannot be used.
func (b *builder) compile(source string, config *tokenizerConfig, since13 bool) (encoder.Template, error) {
	switch {
	case source == "" && config.noTemplate != nil:
		return nil, config.noTemplate
	case source == "":
		return nil, errNoTemplate
	}
	options := b.options
	options.Tokens, options.Since13 = config.tokens, options.Since13 || since13
	t, err := chat.Compile(source, options)
	if err != nil {
		return nil, err // not t: a nil of its type would not be nil here
	}
	return t, nil
}

// loadTiktoken loads a tokenizer that comes as ranks, as Kimi's does.
func loadTiktoken(f *modelfiles.Files) (*tokenizer.Tokenizer, error) {
	config, err := tokenizer.ReadTiktokenConfig(f.Config)
	if err != nil {
		return nil, err
	}
	return tokenizer.LoadTiktoken(f.Tiktoken, config)
}
