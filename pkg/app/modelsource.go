package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
)

// defaultPoll is how often is looked whether files changed that have no interval of
// their own.
const defaultPoll = 10 * time.Second

// configureInProcess builds the part that turns prompts into chains here.
func configureInProcess(policy *v1alpha1.RoutingPolicySpec, layout block.Layout, engines engineAsker, log *slog.Logger) (*inProcess, error) {
	spec := &policy.Tokenizer.InProcess
	source, err := modelSource(&spec.Source)
	if err != nil {
		return nil, err
	}
	b, err := newBuilder(policy, layout)
	if err != nil {
		return nil, err
	}
	every := *spec.Parity.SampleEvery
	if b.policy == parity.Off {
		every = 0
	}
	cfg := inProcessConfig{
		Source: source, Build: b.build, Engines: engines, Layout: layout,
		Special: map[v1alpha1.AddSpecialTokens]parity.Special{
			v1alpha1.SpecialAuto:   parity.SpecialAuto,
			v1alpha1.SpecialAlways: parity.SpecialAlways,
			v1alpha1.SpecialNever:  parity.SpecialNever,
		}[spec.AddSpecialTokens],
		Policy:  b.policy,
		Sampler: parity.NewSampler(every, spec.Parity.SampleInterval.Duration),
		Fixed:   spec.ChatTemplate.File == "",
		Recheck: spec.Parity.RecheckInterval.Duration,
		Log:     log,
	}
	cfg.Poll = defaultPoll
	if d := spec.Source.Directory; d != nil {
		cfg.Poll = d.PollInterval.Duration
	}
	if d := spec.Source.Dynamo; d != nil {
		cfg.Beside = append(cfg.Beside, d.CardFiles...)
	}
	if file := spec.ChatTemplate.File; file != "" {
		cfg.Beside = append(cfg.Beside, file)
	}
	return newInProcess(cfg), nil
}

func modelSource(spec *v1alpha1.ModelSourceSpec) (modelfiles.Source, error) {
	switch {
	case spec.Directory != nil:
		return &modelfiles.Directory{Path: spec.Directory.Path, Revision: spec.Directory.Revision}, nil
	case spec.HuggingFace != nil:
		h := hubConfig(&spec.HuggingFace.Hub)
		h.Repository, h.Revision = spec.HuggingFace.Repository, spec.HuggingFace.Revision
		return modelfiles.NewHub(h)
	default:
		return &cardSource{spec.Dynamo}, nil
	}
}

func hubConfig(spec *v1alpha1.HubSpec) modelfiles.HubConfig {
	return modelfiles.HubConfig{Address: spec.Address, TokenFile: spec.TokenFile, CacheDir: spec.CacheDir, Offline: spec.Offline}
}

// cardSource gets the files from the workers whose model cards are in files.
type cardSource struct{ spec *v1alpha1.DynamoSourceSpec }

// maxCard is far above any model card, in bytes.
const maxCard = 16 << 20

// Fetch reads the cards anew: a worker that starts again has another address.
func (s *cardSource) Fetch(ctx context.Context) (*modelfiles.Files, error) {
	cfg := modelfiles.WorkerConfig{}
	if s.spec.Hub != nil {
		h := hubConfig(s.spec.Hub)
		cfg.Hub = &h
	}
	var errs []error
	for _, name := range s.spec.CardFiles {
		data, err := readBounded(name, maxCard)
		if err != nil {
			errs = append(errs, fmt.Errorf("model card: %w", err))
			continue
		}
		card, err := modelfiles.ParseCard(data)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		cfg.Cards = append(cfg.Cards, card)
	}
	if len(cfg.Cards) == 0 { // else one of the others may do
		return nil, errors.Join(errs...)
	}
	w, err := modelfiles.NewWorker(cfg)
	if err != nil {
		return nil, err
	}
	return w.Fetch(ctx)
}

// readBounded reads a file that must not be large.
func readBounded(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", name)
	case info.Size() > most:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return os.ReadFile(name)
}
