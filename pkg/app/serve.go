package app

import (
	"context"
	"errors"
	"io"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/telemetry"
)

// ErrNoConfig says how to give the configuration file that is missing.
var ErrNoConfig = errors.New("no configuration file: give one with --config FILE (epp --help shows a small one)")

// Serve runs a picker from a configuration file until ctx ends. Logs go to w, as
// text or json.
func Serve(ctx context.Context, config, logFormat string, w io.Writer) error {
	if config == "" {
		return ErrNoConfig
	}
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(w, string(cfg.Server.LogLevel), logFormat)
	if err != nil {
		return err
	}
	a, err := New(cfg, log)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
