// Command warmpath is the operator's tool: a demo, explanations, simulated workers, benchmarks.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/pkg/app"
	"github.com/warmpath/warmpath/pkg/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "warmpath:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "warmpath",
		Short: "Try, ask, measure and simulate the warmpath endpoint picker",
		Long: `warmpath is the tool beside the picker itself (epp).

Start with the demo: it needs no Kubernetes, no GPU and no model.

  warmpath demo`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       telemetry.Version(),
	}
	root.AddCommand(demoCommand(), explainCommand(), simWorkerCommand(), benchCommand(), serveCommand())
	return root
}

// serveCommand is epp under another name: demo and benchmarks start this very
// executable as the picker, so that one binary is enough for both.
func serveCommand() *cobra.Command {
	var config, logFormat string
	c := &cobra.Command{
		Use:    "serve --config FILE",
		Short:  "Run the picker, as epp does",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.Serve(cmd.Context(), config, logFormat, cmd.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&config, "config", "", "configuration file, kind EndpointPickerConfig")
	c.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	return c
}
