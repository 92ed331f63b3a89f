package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/cmd/warmpath/internal/bench"
)

func benchCommand() *cobra.Command {
	parent := &cobra.Command{
		Use:   "bench",
		Short: "Measure the picker on this machine",
		Long:  "Measure the picker on this machine. docs/benchmarks.md has results and says how to read them.",
	}
	cfg := bench.Config{}
	var output string
	c := &cobra.Command{
		Use:   "extproc",
		Short: "Latency, throughput, CPU and memory of the ext-proc round trip",
		Long: `Measures how long a request waits for its decision: ext-proc headers and body in,
header mutation out, over gRPC on loopback. Prompts are token ids; 256
conversations share 16 system prompts; the index holds four fifths of each
prompt. The picker runs as a process of its own, so CPU and memory are its own;
the clients share the machine with it, so compare CPU per request rather than
requests per second.

Beside every cell runs a floor: a picker that looks at nothing and sends the
body back. The ratio to it is what looking costs.`,
		Example: "  warmpath bench extproc\n  warmpath bench extproc --bodies 16384 --streams 32 --workers 64 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "json":
				cfg.JSON = true
			case "table":
			default:
				return fmt.Errorf("--output %q is not table or json", output)
			}
			if cfg.Rounds < 1 || cfg.Duration <= 0 {
				return errors.New("--rounds and --duration must be positive")
			}
			cfg.Out, cfg.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return bench.ExtProc(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.IntSliceVar(&cfg.Bodies, "bodies", []int{1 << 10, 16 << 10, 128 << 10}, "body sizes, bytes")
	f.IntSliceVar(&cfg.Streams, "streams", []int{1, 32, 256}, "requests at once")
	f.IntSliceVar(&cfg.Workers, "workers", []int{8, 64}, "workers in the pool")
	f.DurationVar(&cfg.Duration, "duration", 2*time.Second, "length of one measurement")
	f.IntVar(&cfg.Rounds, "rounds", 3, "measurements per cell; the median counts")
	f.StringVarP(&output, "output", "o", "table", "table or json")
	parent.AddCommand(c, benchIndexCommand(), benchEventsCommand(), benchTokensCommand(), benchPickCommand())
	parent.AddCommand(benchPartCommands()...)
	return parent
}

func benchIndexCommand() *cobra.Command {
	cfg := bench.IndexConfig{}
	var output string
	c := &cobra.Command{
		Use:   "index",
		Short: "Speed and memory of the prefix index",
		Long: `Measures the prefix index in this process, with about a million (worker, block)
entries, and with ten million over 1,000 workers: events applied by all cores,
decoded ones and from bytes; lookups of prompts of 128 and 1,000 blocks, idle,
beside a writer that never rests, beside workers that are dropped, and behind a
backlog of events; bytes per entry with all that belongs to it; snapshots; pauses
of the garbage collector beside those of a process without an index; hashing.
Every lookup's answer is checked.

The replay needs Mooncake's conversation trace, which is not part of warmpath:
github.com/kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl.
Without --trace it is left out.`,
		Example: "  warmpath bench index\n  warmpath bench index --rounds 5 --trace conversation_trace.jsonl -o json\n  warmpath bench index --shrink 100 --rounds 1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Output, err = bench.ParseOutput(output); err != nil {
				return err
			}
			if cfg.Rounds < 1 || cfg.Shrink < 1 {
				return errors.New("--rounds and --shrink must be positive")
			}
			cfg.Out, cfg.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return bench.Index(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.IntVar(&cfg.Rounds, "rounds", 3, "measurements per case; the median counts")
	f.BoolVar(&cfg.Large, "large", true, "also 10 million entries over 1,000 workers, which takes 2 GB")
	f.StringVar(&cfg.Trace, "trace", "", "file with Mooncake's conversation trace, for the replay")
	f.IntVar(&cfg.Shrink, "shrink", 1, "divide the workload by this, for a quick look")
	f.StringVarP(&output, "output", "o", "table", "table, json or markdown")
	return c
}

func benchEventsCommand() *cobra.Command {
	cfg := bench.EventsConfig{}
	var output string
	c := &cobra.Command{
		Use:   "events",
		Short: "Latency and throughput of KV events, from publish to lookup",
		Long: `Measures the event plane end to end. Workers, each with a connection of its own,
publish Dynamo's KV events in one process; a NATS server is another; plane and
index are in this one, as in the picker. Every step of a worker stores 64 blocks
and removes 64 older ones, so the index keeps its size; blocks per second count
those stored. Messages hold an array of events (Dynamo 1.4+), or one event each
(1.2, 1.3: the cases with -map).

  events-latency    publish to visible in a lookup, at a steady rate
  events-sustained  the highest rate without a loss or a growing backlog
  events-flood      what arrives when publishers go as fast as they can, and
                    what NATS dropped then

CPU is in cores, of each process: it tells what bounds the rate.`,
		Example: "  warmpath bench events\n  warmpath bench events --duration 5s --publishers 64 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Output, err = bench.ParseOutput(output); err != nil {
				return err
			}
			if cfg.Rounds < 1 || cfg.Publishers < 1 || cfg.Duration <= 0 || cfg.Rate <= 0 {
				return errors.New("--rounds, --publishers, --duration and --rate must be positive")
			}
			for _, p := range cfg.Payloads {
				if p != bench.ArrayPayload && p != bench.MapPayload {
					return fmt.Errorf("--payloads %q is not array or map", p)
				}
			}
			cfg.Out, cfg.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return bench.Events(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.IntVar(&cfg.Publishers, "publishers", 64, "workers that publish")
	f.DurationVar(&cfg.Duration, "duration", 3*time.Second, "length of one measurement")
	f.IntVar(&cfg.Rounds, "rounds", 3, "measurements per case; the median counts")
	f.Float64Var(&cfg.Rate, "rate", 200_000, "blocks per second while latency is measured")
	f.StringSliceVar(&cfg.Payloads, "payloads", []string{bench.ArrayPayload, bench.MapPayload}, "forms of messages")
	f.BoolVar(&cfg.JetStream, "jetstream", false, "events go through a JetStream stream; cases end in -jetstream")
	f.StringVarP(&output, "output", "o", "table", "table, json or markdown")
	return c
}

// benchPublishersCommand is the process of the publishers of bench events.
func benchPublishersCommand() *cobra.Command {
	cfg := bench.PublishersConfig{}
	c := &cobra.Command{
		Use: "publishers", Short: "The workers of bench events", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.In, cfg.Out = cmd.InOrStdin(), cmd.OutOrStdout()
			return bench.Publishers(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.URL, "url", "", "NATS server")
	f.IntVar(&cfg.Publishers, "publishers", 1, "how many")
	f.BoolVar(&cfg.Array, "array", true, "an array of events per message")
	f.Float64Var(&cfg.Rate, "rate", 0, "blocks per second of all; 0 is as fast as they can")
	f.Float64Var(&cfg.Stamps, "stamps", 0, "times of sending told per second")
	f.DurationVar(&cfg.Duration, "duration", time.Second, "time of publishing")
	return c
}

// benchPartCommands are the processes that a benchmark starts beside its own.
func benchPartCommands() []*cobra.Command {
	part := func(use, short string, run func(cmd *cobra.Command) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Hidden: true, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
		}
	}
	jetStream := false
	natsServer := part("nats-server", "The NATS server of bench events", func(cmd *cobra.Command) error {
		return bench.NATSServer(cmd.Context(), jetStream, cmd.ErrOrStderr())
	})
	natsServer.Flags().BoolVar(&jetStream, "jetstream", false, "with JetStream")
	return []*cobra.Command{
		part("floor-server", "The baseline that bench extproc compares with", func(cmd *cobra.Command) error {
			return bench.FloorServer(cmd.Context(), cmd.ErrOrStderr())
		}),
		natsServer,
		benchPublishersCommand(),
		benchTokensLoadCommand(),
		part("baseline-pauses", "Pauses of a process without an index, for bench index", func(cmd *cobra.Command) error {
			return bench.BaselinePauses(cmd.OutOrStdout())
		}),
	}
}
