package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/pkg/app"
)

// question is what warmpath explain asks.
type question struct {
	picker  string // URL of the picker's metrics port
	path    string // of the request
	model   string
	file    string // with the request's body; "-" is standard input
	headers []string
	timeout time.Duration
}

func explainCommand() *cobra.Command {
	q := question{}
	var output string
	c := &cobra.Command{
		Use:   "explain [PROMPT]",
		Short: "Say where a request would go now, and why",
		Long: `Asks a running picker where it would send a request now, and shows every worker's
terms. Nothing is booked, and the request goes nowhere.

PROMPT is the message of a user. For any other request give its body with --file,
and its path with --path. The picker answers on its metrics port. In a cluster open
it first, for the release llm in the namespace llm:

  kubectl -n llm port-forward deployment/llm-warmpath 9090

The columns:

  WOULD          what the worker would do: prefill, decode, or both (aggregated)
  HELD           blocks of the prompt that it holds: on its device + in host memory
                 + on disk + outside the worker
  SHARED         blocks that it would read from a store for all workers
  SAVED          blocks that it need not compute; host memory and the like count less
  TOKENS AHEAD   tokens of other prompts that wait there
  BLOCKS IN USE  KV blocks of the requests there
  REQUESTS       requests there
  CONGESTION     its cost in the Congestion model, in prompt tokens
  DYNAMO         its cost in the Dynamo model, in KV blocks
  ALONE          of a decode worker: its cost if it computed the prompt, too
  NOTE           whether it was chosen, or why it cannot be

The lowest cost in the model in use wins. Of a pair, the sum of both workers and of
the transfer between them counts.`,
		Example: `  warmpath explain --model llama "Why is the sky blue?"
  warmpath explain --file request.json
  warmpath explain --file request.json --path /v1/completions --header x-tenant-id=a -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %q is not table or json", output)
			}
			body, err := q.body(args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			answer, err := q.ask(cmd.Context(), body)
			if err != nil {
				return err
			}
			if output == "json" {
				_, err = cmd.OutOrStdout().Write(answer)
				return err
			}
			var x app.Explained
			if err := json.Unmarshal(answer, &x); err != nil {
				return fmt.Errorf("the answer of %s is not from a picker: %w", q.picker, err)
			}
			return writeExplained(cmd.OutOrStdout(), &x)
		},
	}
	f := c.Flags()
	f.StringVar(&q.picker, "picker", "http://127.0.0.1:9090", "metrics port of the picker")
	f.StringVar(&q.path, "path", "/v1/chat/completions", "path of the request")
	f.StringVar(&q.model, "model", "", "model of the request; needed with PROMPT")
	f.StringVarP(&q.file, "file", "f", "", "file with the body of the request; - reads standard input")
	f.StringArrayVar(&q.headers, "header", nil, "header of the request, NAME=VALUE; may be repeated")
	f.DurationVar(&q.timeout, "timeout", 10*time.Second, "how long to wait for the answer")
	f.StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

// body is the body of the request.
func (q *question) body(args []string, stdin io.Reader) ([]byte, error) {
	switch {
	case len(args) == 1 && q.file != "":
		return nil, errors.New("give PROMPT or --file, not both")
	case q.file == "-":
		return io.ReadAll(stdin)
	case q.file != "":
		body, err := os.ReadFile(q.file)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		return body, nil
	case len(args) == 0:
		return nil, errors.New("what is to be explained? Give PROMPT and --model, or --file with the body of a request")
	case q.model == "":
		return nil, errors.New("--model is needed with PROMPT: it decides how the prompt is cut into tokens")
	}
	if q.path == "/v1/completions" {
		return json.Marshal(map[string]any{"model": q.model, "prompt": args[0]})
	}
	return json.Marshal(map[string]any{"model": q.model, "messages": []map[string]string{{"role": "user", "content": args[0]}}})
}

// ask asks the picker.
func (q *question) ask(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	target := strings.TrimSuffix(q.picker, "/") + "/explain?path=" + url.QueryEscape(q.path)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--picker: %w", err)
	}
	for _, h := range q.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, fmt.Errorf("--header %q is not NAME=VALUE", h)
		}
		r.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the picker (is --picker its metrics port, and is a port-forward still running?): %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("the picker's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the picker answers %s: %s", response.Status, strings.TrimSpace(string(answer)))
	}
	return answer, nil
}

// writeExplained writes an explanation for people.
func writeExplained(w io.Writer, x *app.Explained) error {
	fmt.Fprintf(w, "%s model, %d tokens a block. ", x.Model, x.BlockSize)
	if x.Prompt.Source == "unknown" {
		fmt.Fprintf(w, "Prompt: about %d tokens; their ids are not known, so load decides.\n", x.Prompt.Tokens)
	} else {
		fmt.Fprintf(w, "Prompt: %d tokens, %d full blocks (%s).\n", x.Prompt.Tokens, x.Prompt.Blocks, x.Prompt.Source)
	}
	fmt.Fprintf(w, "Workers that compute prompts were busy %.0f %% of the time.\n", 100*x.Rho)
	if d := x.Decision; d != nil {
		fmt.Fprintf(w, "Decision: %s. %s computes the prompt, %s generates the output.\n", d.Mode, d.Prefill, d.Decode)
		if x.Prompt.Blocks > 0 {
			fmt.Fprintf(w, "Of the %d blocks %s holds %d, and need not compute them; the best worker holds %d.\n", x.Prompt.Blocks, d.Prefill, d.Matched, d.Best)
		}
		if d.Moot {
			fmt.Fprintln(w, "The condition would have kept the prompt on the decode worker, but the data plane needs a pair.")
		}
	} else {
		fmt.Fprintf(w, "Decision: none: %s.\n", x.Refusal)
	}
	if p := x.Pair; p != nil {
		fmt.Fprintf(w, "Cheapest pair: distance %s, transfer costs %s, first token after about %s; a decode worker alone: after about %s.\n",
			p.Distance, figure(p.Transfer), seconds(p.SplitSeconds), seconds(p.AloneSeconds))
	}
	if l := x.Transfer; l != nil {
		fmt.Fprintf(w, "A transfer takes %s and %s per 1,000 tokens, learned from %d requests.\n", seconds(l.SerialSeconds), seconds(1000*l.SecondsPerToken), l.Samples)
	}
	fmt.Fprintln(w)
	slices.SortFunc(x.Workers, func(a, b app.ExplainedWorker) int { return x.Compare(&a, &b) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKER\tWOULD\tHELD\tSHARED\tSAVED\tTOKENS AHEAD\tBLOCKS IN USE\tREQUESTS\tCONGESTION\tDYNAMO\tALONE\tNOTE")
	for i := range x.Workers {
		fmt.Fprintln(t, strings.Join(explainedLine(x, &x.Workers[i]), "\t"))
	}
	return t.Flush()
}

// explainedLine is the row of a worker.
func explainedLine(x *app.Explained, w *app.ExplainedWorker) []string {
	name := w.Name
	if w.Rank > 0 {
		name += "/" + strconv.FormatUint(uint64(w.Rank), 10)
	}
	note := w.Out
	switch {
	case w.Chosen == "both":
		note = "chosen"
	case w.Chosen != "":
		note = "chosen for " + w.Chosen
	case w.Avoided:
		note = "failed lately"
	case w.Penalty > 0:
		note = "penalty of " + figure(w.Penalty) + " blocks"
	}
	congestion, dynamo, alone := figure(w.Cost.Congestion), figure(w.Cost.Dynamo), "-"
	if w.Side == "Decode" {
		alone = figure(w.Local.Congestion)
		if x.Model == "Dynamo" {
			alone = figure(w.Local.Dynamo)
		}
	}
	if w.Out != "" {
		congestion, dynamo, alone = "-", "-", "-"
	}
	h := w.Held
	return []string{
		name, strings.ToLower(w.Side), fmt.Sprintf("%d+%d+%d+%d", h.Device, h.Host, h.Disk, h.External),
		strconv.Itoa(w.Shared), figure(w.Saved), figure(w.Load.Ahead), strconv.Itoa(w.Load.DecodeBlocks), strconv.Itoa(w.Load.Requests),
		congestion, dynamo, alone, note,
	}
}

// figure writes a cost with as many digits as are of use.
func figure(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 32)
}

func seconds(v float64) string {
	return time.Duration(v * float64(time.Second)).Round(time.Microsecond).String()
}
