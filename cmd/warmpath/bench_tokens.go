package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/cmd/warmpath/internal/bench"
)

func benchTokensCommand() *cobra.Command {
	cfg := bench.TokensConfig{}
	var output string
	c := &cobra.Command{
		Use:   "tokens --models DIR --texts DIR",
		Short: "Speed and memory of the way from prompts to tokens",
		Long: `Measures the way from a request to tokens and block hashes, on one core.

  load    loading a tokenizer.json in a process of its own: time, and memory
  encode  10,000 and 100,000 tokens of a text, again and again
  first   the same as the first text that a tokenizer encodes
  prompt  whole request bodies, scanned, rendered, tokenized and hashed: a
          conversation whose history of 20,000 tokens grows by 200 a turn, and a
          body of 128 KB that the memo does not know (cold) or does (warm)

The models are folders with a tokenizer.json and a tokenizer_config.json as
engines use them; the texts are english.txt, code.txt and chinese.txt, each of
at least 100,000 tokens. Neither is part of warmpath: "make bench-tokens" fetches
both, and measures Hugging Face tokenizers beside it.`,
		Example: "  warmpath bench tokens --models models --texts texts\n  warmpath bench tokens --models models --texts texts --tokenizers qwen3 --parts prompt -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Output, err = bench.ParseOutput(output); err != nil {
				return err
			}
			if cfg.Models == "" || cfg.Texts == "" {
				return errors.New("--models and --texts are needed; make bench-tokens fetches some")
			}
			if cfg.Rounds < 1 || cfg.Shrink < 1 || cfg.Duration <= 0 {
				return errors.New("--rounds, --shrink and --duration must be positive")
			}
			for _, part := range cfg.Parts {
				if !slices.Contains(bench.TokenParts, part) {
					return fmt.Errorf("--parts %q is not one of %s", part, strings.Join(bench.TokenParts, ", "))
				}
			}
			cfg.Out, cfg.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return bench.Tokens(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Models, "models", "", "folder with a folder for each model")
	f.StringVar(&cfg.Texts, "texts", "", "folder with the texts")
	f.StringSliceVar(&cfg.Tokenizers, "tokenizers", nil, "models to measure; all when empty")
	f.StringSliceVar(&cfg.Parts, "parts", nil, "what to measure: "+strings.Join(bench.TokenParts, ", ")+"; all when empty")
	f.DurationVar(&cfg.Duration, "duration", 500*time.Millisecond, "length of one measurement")
	f.IntVar(&cfg.Rounds, "rounds", 3, "measurements per case; the median counts")
	f.IntVar(&cfg.Shrink, "shrink", 1, "divide the workload by this, for a quick look")
	f.StringVar(&cfg.Dump, "dump", "", "folder for what is encoded, and its token ids, so that others can measure the same")
	f.StringVarP(&output, "output", "o", "table", "table, json or markdown")
	return c
}

// benchTokensLoadCommand is the process that loads a tokenizer for bench tokens.
func benchTokensLoadCommand() *cobra.Command {
	return &cobra.Command{
		Use: "tokens-load FILE", Short: "Loading a tokenizer, for bench tokens", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.LoadTokenizer(args[0], cmd.OutOrStdout())
		},
	}
}
