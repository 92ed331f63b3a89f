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

// CheckModel loads the files of spec.tokenizer.inProcess, if they come from a
// folder, and says what in them cannot be used. Files that come from elsewhere are
// not fetched.
func CheckModel(ctx context.Context, policy *v1alpha1.RoutingPolicySpec) error {
	from := policy.Tokenizer.InProcess.Source.Directory
	if from == nil {
		return nil
	}
	b, err := newBuilder(policy, block.Layout{Size: policy.BlockSize, Eagle: policy.Eagle})
	if err != nil {
		return err
	}
	files, err := (&modelfiles.Directory{Path: from.Path, Revision: from.Revision}).Fetch(ctx)
	if err != nil {
		return err
	}
	m, err := b.build(files)
	if err != nil {
		return err
	}
	return m.noChats
}

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
