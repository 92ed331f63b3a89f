// Command epp is warmpath's endpoint picker: an Envoy ext-proc server.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/app"
	"github.com/warmpath/warmpath/pkg/discovery"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "epp:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var config, logFormat string
	root := &cobra.Command{
		Use:   "epp --config FILE",
		Short: "Pick the prefill and the decode worker of every LLM request",
		Long: `epp is an Envoy external processor. For every request that a gateway asks about
it picks the worker whose KV cache already holds the longest part of the prompt,
weighed against load, and names it in x-gateway-destination-endpoint. In a
prefill/decode pool it also names the prefill worker, in the handoff headers.

Everything is in one configuration file. A small one:

  apiVersion: routing.warmpath.dev/v1alpha1
  kind: EndpointPickerConfig
  discovery:
    kubernetes:
      pool: {name: llm}       # or, without a cluster: file: {path: workers.yaml}
  spec:
    blockSize: 16
    eventPlane:
      nats: {url: "nats://127.0.0.1:4222"}

In a cluster the Helm chart writes it, and a RoutingPolicy takes the place of spec.

Check it first with: epp validate --config FILE
All fields: docs/reference/config.md`,
		Example: "  epp --config epp.yaml\n  epp validate --config epp.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.Serve(cmd.Context(), config, logFormat, cmd.ErrOrStderr())
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       telemetry.Version(),
	}
	root.PersistentFlags().StringVar(&config, "config", "", "configuration file, kind EndpointPickerConfig")
	root.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	root.AddCommand(&cobra.Command{
		Use:   "validate --config FILE",
		Short: "Check a configuration file and the files it names",
		Long: `Reads a configuration file and the list of workers that it names, and reports
everything that is wrong with them, with file, line and field. Where the model's
files are in a folder, the tokenizer and the chat template are loaded, too.
Variables of Dynamo's router in the environment (DYN_ROUTER_*) are checked and
listed: what they say is the default of what file and policy leave out.
Warns of bounds that the listed workers say too little for, and of data-parallel
ranks that no handoff header names.
Starts nothing, and asks nobody: with discovery.kubernetes it does not look into
the cluster.
Exits with 0 when all is well and with 1 when not.`,
		Example: "  epp validate --config epp.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			summary, err := validate(cmd.Context(), config)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), summary)
			}
			return err
		},
	})
	root.AddCommand(probeCommand())
	return root
}

// inCluster says where a picker will look for its workers.
func inCluster(k *v1alpha1.KubernetesDiscovery) string {
	if k.Pool != nil {
		return fmt.Sprintf("the workers are the ready pods of InferencePool %s", k.Pool.Name)
	}
	return fmt.Sprintf("the workers are the ready pods with %s", k.Selector.LabelSelector)
}

// validate checks the environment, a configuration file and the files that it names.
func validate(ctx context.Context, config string) (summary string, err error) {
	if config == "" {
		return "", app.ErrNoConfig
	}
	env, err := app.ReadEnvironment(os.Environ())
	if err != nil {
		return "", fmt.Errorf("environment: %w", err)
	}
	summary, err = validateFile(ctx, config, env)
	if err != nil {
		return "", err
	}
	for _, s := range append(env.Set, env.Ignored...) {
		summary += "\nenvironment: " + s.String()
	}
	return summary, nil
}

func validateFile(ctx context.Context, config string, env *app.Environment) (summary string, err error) {
	cfg, err := v1alpha1.LoadWith(config, &env.Spec)
	if err != nil {
		return "", err
	}
	if err := app.CheckModel(ctx, &cfg.Spec); err != nil {
		return "", fmt.Errorf("%s: spec.tokenizer.inProcess: %w", config, err)
	}
	if k := cfg.Discovery.Kubernetes; k != nil {
		return fmt.Sprintf("%s is valid: %s", config, inCluster(k)), nil
	}
	pool, err := discovery.Load(cfg.Discovery.File.Path, discovery.RulesOf(&cfg.Spec))
	if err != nil {
		return "", err
	}
	summary = fmt.Sprintf("%s is valid: %d prefill, %d decode, %d aggregated workers are ready in %s", config,
		pool.Count(fleet.Prefill), pool.Count(fleet.Decode), pool.Count(fleet.Aggregated), cfg.Discovery.File.Path)
	for _, w := range app.Warnings(&cfg.Spec, pool) {
		summary += "\nwarning: " + w
	}
	return summary, nil
}
