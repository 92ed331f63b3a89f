package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/pkg/app"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/simengine"
	"github.com/warmpath/warmpath/pkg/telemetry"
)

func simWorkerCommand() *cobra.Command {
	cfg := simengine.Config{}
	var role, generation, model, template string
	c := &cobra.Command{
		Use:   "sim-worker --name NAME",
		Short: "Run a simulated worker: OpenAI API, KV cache, events on NATS, no GPU",
		Long: `Runs one simulated vLLM/Dynamo worker. It answers the OpenAI API, keeps a real
block-level KV cache with LRU eviction, publishes Dynamo's KV-cache events on
NATS, and plays both halves of the prefill/decode handshake.`,
		Example: `  warmpath sim-worker --name worker-0 --listen 127.0.0.1:8001 --nats nats://127.0.0.1:4222
  warmpath sim-worker --name prefill-0 --role prefill --nats nats://127.0.0.1:4222`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			roles := map[string]fleet.Role{"aggregated": fleet.Aggregated, "prefill": fleet.Prefill, "decode": fleet.Decode}
			generations := map[string]dynamo.Generation{"1.2": dynamo.Gen12, "1.4": dynamo.Gen14, "1.5": dynamo.Gen15}
			var ok bool
			if cfg.Role, ok = roles[role]; !ok {
				return fmt.Errorf("--role %q is not aggregated, prefill or decode", role)
			}
			if cfg.Generation, ok = generations[generation]; !ok {
				return fmt.Errorf("--generation %q is not 1.2, 1.4 or 1.5", generation)
			}
			if template != "" && model == "" {
				return errors.New("--chat-template needs --tokenizer")
			}
			if model != "" {
				var err error
				if cfg.Tokenize, err = app.LoadTokenizer(cmd.Context(), model, template); err != nil {
					return fmt.Errorf("--tokenizer %s: %w", model, err)
				}
			}
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), "info", "json")
			if err != nil {
				return err
			}
			cfg.Log = log
			engine, err := simengine.New(cfg)
			if err != nil {
				return err
			}
			return engine.Run(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Name, "name", "", "pod name; the worker id is derived from it (required)")
	f.Uint64Var(&cfg.WorkerID, "worker-id", 0, "worker id, instead of the one derived from the name")
	f.Uint32Var(&cfg.Rank, "rank", 0, "data-parallel rank")
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:0", "where to serve HTTP; port 0 takes a free one")
	f.StringVar(&role, "role", "aggregated", "aggregated, prefill or decode")
	f.StringVar(&cfg.Model, "model", "warmpath/demo", "model name")
	f.StringVar(&model, "tokenizer", "", "folder with a model's tokenizer and chat template; without it a token is a byte")
	f.StringVar(&template, "chat-template", "", "file with a chat template in the place of the model's")
	f.IntVar(&cfg.BlockSize, "block-size", 16, "tokens per KV block")
	f.IntVar(&cfg.Blocks, "blocks", 4096, "KV cache capacity, blocks")
	f.StringVar(&cfg.NATSURL, "nats", "", "NATS server for events; none without it")
	f.StringVar(&cfg.Namespace, "namespace", "dynamo", "Dynamo namespace")
	f.StringVar(&cfg.Component, "component", "", "Dynamo component (default prefill or backend, by role)")
	f.StringVar(&generation, "generation", "1.4", "Dynamo release whose event format is spoken: 1.2, 1.4 or 1.5")
	f.Float64Var(&cfg.Timing.PrefillTokensPerSecond, "prefill-tokens-per-second", 0, "prefill speed; 0 is instant")
	f.DurationVar(&cfg.Timing.DecodePerToken, "decode-per-token", 0, "time per output token")
	f.Float64Var(&cfg.Timing.TransferBytesPerToken, "transfer-bytes-per-token", 0, "KV bytes moved from prefill to decode, per prompt token")
	f.Float64Var(&cfg.Timing.TransferBandwidth, "transfer-bandwidth", 0, "bytes per second of that transfer, which overlaps prefill; 0 is instant")
	f.DurationVar(&cfg.Timing.TransferFixed, "transfer-fixed", time.Duration(0), "time per transfer that cannot overlap")
	_ = c.MarkFlagRequired("name") // fails only for a flag that is not there
	return c
}
