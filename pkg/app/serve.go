package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

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
	env, err := ReadEnvironment(os.Environ())
	if err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	cfg, err := v1alpha1.LoadWith(config, &env.Spec)
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(w, string(cfg.Server.LogLevel), logFormat)
	if err != nil {
		return err
	}
	env.Log(log, &cfg.Spec)
	a, err := newApp(cfg, &env.Spec, log)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
