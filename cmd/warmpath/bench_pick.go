package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/cmd/warmpath/internal/bench"
)

func benchPickCommand() *cobra.Command {
	cfg := bench.PickConfig{}
	var output string
	c := &cobra.Command{
		Use:   "pick",
		Short: "Speed of decisions",
		Long: `Measures decisions in this process: from a request to the workers that were chosen
for it, their load booked. 256 requests are on the workers at any time; an eighth
of the workers hold the prompt in part.

  pick, pair  prompts of one block, so that looking them up takes next to nothing:
              the decision itself, over aggregated workers and over pairs
  -128-blocks prompts of 128 blocks, looked up in the index, and their blocks
              counted among those in use

Every decision is timed by itself, with what reading the clock takes. Scaling is
the throughput of two goroutines over that of one, and needs two idle cores.
CPU time holds on a busy machine, too; it has the end of a request in it.`,
		Example: "  warmpath bench pick\n  warmpath bench pick --rounds 5 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Output, err = bench.ParseOutput(output); err != nil {
				return err
			}
			if cfg.Rounds < 1 || cfg.Picks < 1 || cfg.Duration <= 0 {
				return errors.New("--rounds, --picks and --duration must be positive")
			}
			cfg.Out, cfg.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return bench.Pick(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.IntVar(&cfg.Rounds, "rounds", 3, "measurements per case; the median counts")
	f.IntVar(&cfg.Picks, "picks", 50_000, "decisions per case that are timed one by one")
	f.DurationVar(&cfg.Duration, "duration", 500*time.Millisecond, "length of one measurement of throughput")
	f.StringVarP(&output, "output", "o", "table", "table, json or markdown")
	return c
}
