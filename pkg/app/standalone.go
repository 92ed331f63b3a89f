package app

import (
	"context"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

// LoadTokenizer returns what turns request bodies into token ids, as a picker does
// by default that has its model's files in a folder. template is a file with a
// chat template in the place of the model's, empty for none. It is for simulated
// workers: they do what engines do, so special tokens are added to texts.
func LoadTokenizer(ctx context.Context, dir, template string) (func(kind prompt.Kind, body []byte) ([]uint32, error), error) {
	policy := &v1alpha1.RoutingPolicySpec{}
	policy.Tokenizer.InProcess.ChatTemplate.File = template
	policy.Default()
	b, err := newBuilder(policy, block.Layout{Size: policy.BlockSize})
	if err != nil {
		return nil, err
	}
	files, err := (&modelfiles.Directory{Path: dir}).Fetch(ctx)
	if err != nil {
		return nil, err
	}
	m, err := b.build(files)
	if err != nil {
		return nil, err
	}
	if m.noChats != nil {
		return nil, m.noChats
	}
	return func(kind prompt.Kind, body []byte) ([]uint32, error) {
		r := &encoder.Result{WantIDs: true}
		err := m.encodeUnscanned(r, kind, body, true, time.Now())
		return r.IDs, err
	}, nil
}
