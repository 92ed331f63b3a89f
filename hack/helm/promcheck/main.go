// Command promcheck reads PromQL expressions, a JSON list of strings, from standard
// input, and says which of them Prometheus would refuse.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	var expressions []string
	if err := json.NewDecoder(os.Stdin).Decode(&expressions); err != nil {
		fmt.Fprintln(os.Stderr, "promcheck:", err)
		os.Exit(1)
	}
	failed := false
	for _, e := range expressions {
		if _, err := parser.NewParser(parser.Options{}).ParseExpr(e); err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%v in\n%s\n", err, e)
		}
	}
	if failed {
		os.Exit(1)
	}
}
