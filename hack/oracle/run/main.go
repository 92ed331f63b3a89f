// Command run installs the reference tokenizers and runs a script of hack/oracle:
//
//	go run ./hack/oracle/run SCRIPT [ARGUMENT...]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"github.com/warmpath/warmpath/hack/oracle"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(exit.ExitCode())
		}
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 2 {
		return errors.New("which script?")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	env, err := oracle.Install(ctx)
	if err != nil {
		return err
	}
	cmd := env.Command(ctx, os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
