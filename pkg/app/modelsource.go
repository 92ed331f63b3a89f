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

// configureInProcess builds the part that turns prompts into chains here.
func configureInProcess(spec *v1alpha1.InProcessSpec, layout block.Layout, engines engineAsker, log *slog.Logger) (*inProcess, error) {
	source, err := modelSource(&spec.Source)
	if err != nil {
		return nil, err
	}
	zone, err := time.LoadLocation(spec.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: time zone: %w", err)
	}
	special := map[v1alpha1.AddSpecialTokens]parity.Special{
		v1alpha1.SpecialAuto:   parity.SpecialAuto,
		v1alpha1.SpecialAlways: parity.SpecialAlways,
		v1alpha1.SpecialNever:  parity.SpecialNever,
	}[spec.AddSpecialTokens]
	policy := map[v1alpha1.ParityPolicy]parity.Policy{
		v1alpha1.ParityWhenAvailable: parity.WhenAvailable,
		v1alpha1.ParityRequired:      parity.Required,
		v1alpha1.ParityOff:           parity.Off,
	}[spec.Parity.Policy]
	// Dynamo's frontend adds no special tokens to texts, vLLM does.
	usual := special == parity.SpecialAlways || special == parity.SpecialAuto && spec.Source.Dynamo == nil
	every := *spec.Parity.SampleEvery
	if policy == parity.Off {
		every = 0
	}
	b := &builder{
		layout: layout, templateFile: spec.TemplateFile, zone: zone, memoBytes: spec.MemoBytes,
		gate: func() *parity.Gate { return parity.NewGate(policy, usual) },
	}
	p := newInProcess(inProcessConfig{
		Source: source, Build: b.build, Engines: engines, Layout: layout,
		Special: special, Policy: policy,
		Sampler: parity.NewSampler(every, spec.Parity.SampleInterval.Duration),
		Recheck: spec.Parity.RecheckInterval.Duration,
		Log:     log,
	})
	if d := spec.Source.Directory; d != nil {
		p.cfg.Poll = d.PollInterval.Duration
	}
	return p, nil
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
