package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// maxProbe is far above what /readyz says.
const maxProbe = 64 << 10

// probeCommand asks another picker how it is. The image holds nothing else that
// could: the chart's test needs it.
func probeCommand() *cobra.Command {
	var url string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "probe --url http://HOST:9090/readyz",
		Short: "Ask a running picker whether it is ready",
		Long: `Asks a running picker over HTTP, again and again until it answers with 200 or the
time is over, and prints its last answer: what is missing, where it is not ready.
Exits with 0 when it is ready and with 1 when not.`,
		Example: "  epp probe --url http://127.0.0.1:9090/readyz --wait 1m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			answer, err := probe(ctx, url)
			fmt.Fprint(cmd.OutOrStdout(), answer)
			return err
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:9090/readyz", "what to ask")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to try")
	return cmd
}

// probe asks once a second until the answer is 200 or ctx ends.
func probe(ctx context.Context, url string) (answer string, err error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		said, failed := ask(ctx, url)
		if failed == nil {
			return said, nil
		}
		if ctx.Err() == nil || err == nil { // else it failed because the time is over
			answer, err = said, failed
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return answer, err
		}
	}
}

func ask(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProbe))
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode != http.StatusOK:
		return string(body), fmt.Errorf("%s answers %s", url, strings.ToLower(resp.Status))
	}
	return string(body), nil
}
