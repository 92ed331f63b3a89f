package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/cmd/warmpath/internal/demo"
	"github.com/warmpath/warmpath/pkg/telemetry"
)

func demoCommand() *cobra.Command {
	cfg := demo.Config{}
	var output, logLevel string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch prefix routing work on this machine: NATS, workers, picker, Envoy",
		Long: `Starts a whole prefill/decode pool on this machine, with no GPU and no model: an
embedded NATS server, two prefill and two decode simulated workers, the picker,
and a real Envoy in front. Then it holds chat conversations of eight tenants (A
to H), each with a long system prompt of its own, and prints a line a second:

  hit rate    prompt tokens that a worker found in its cache, share of all
  ceiling     what an infinite cache would have found
  events/s    KV events that the picker received from the workers
  A: ...      which worker computed how many prompts of tenant A

The hit rate climbs as the picker learns from the events who holds what.

Envoy is installed on first use with Python's pip, into the cache folder
(WARMPATH_CACHE, or the user's cache folder). Without Python, use
--gateway builtin: a small gateway that speaks ext-proc as Envoy does.

While it runs, send requests of your own to the gateway (--clients 0 sends no
others), and ask for reasons with the command that it prints as "explain":

  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
    -d '{"model":"warmpath/demo","messages":[{"role":"user","content":"Why is the sky blue?"}]}'

Ctrl-C ends it.`,
		Example: `  warmpath demo
  warmpath demo --split-at 20s
  warmpath demo --gateway builtin --duration 30s -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "json":
				cfg.JSON = true
			case "text":
			default:
				return fmt.Errorf("--output %q is not text or json", output)
			}
			cfg.Out, cfg.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			var err error
			if cfg.Log, err = telemetry.NewLogger(cmd.ErrOrStderr(), logLevel, "text"); err != nil {
				return err
			}
			return demo.Run(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Gateway, "gateway", "envoy", "envoy, or builtin for a small gateway that needs no installation")
	f.Uint16Var(&cfg.Port, "port", 8080, "port of the gateway on 127.0.0.1; 0 takes a free one")
	f.DurationVar(&cfg.SplitAt, "split-at", 0, "start with aggregated workers and re-deploy them as prefill/decode after this time")
	f.DurationVar(&cfg.Duration, "duration", 0, "stop after this time; 0 runs until Ctrl-C")
	f.IntVar(&cfg.Clients, "clients", 12, "conversations at once; 0 leaves the pool to your own requests")
	f.StringVarP(&output, "output", "o", "text", "text, or json for one JSON object at the end")
	f.StringVar(&logLevel, "log-level", "warn", "what the parts log: debug, info, warn or error")
	return c
}
