// Command image builds the picker's container image without a container engine,
// and pushes it. The Makefile's targets image and image-push run it.
//
// It is a module of its own, so that what it needs is no part of warmpath.
// Start reading at build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage:
  image build [flags]   build the picker for each platform and write an OCI archive
  image push [flags]    push such an archive to a registry
"image build -h" and "image push -h" list the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command\n%s", usage)
	}
	switch args[0] {
	case "build":
		return runBuild(ctx, args[1:])
	case "push":
		return runPush(ctx, args[1:])
	default:
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
}

func runBuild(ctx context.Context, args []string) error {
	var o options
	var platforms string
	flags := flag.NewFlagSet("image build", flag.ContinueOnError)
	flags.StringVar(&o.source, "source", ".", "folder of the module that holds cmd/epp")
	flags.StringVar(&o.archive, "archive", "dist/warmpath-epp.oci.tar", "OCI archive to write; the binaries go beside it")
	flags.StringVar(&o.base, "base", "", "base image: a folder with an OCI layout, or a reference in a registry; empty for none")
	flags.StringVar(&o.name, "name", "warmpath/epp:dev", "the image's name, written into the archive")
	flags.StringVar(&o.version, "version", "dev", "version of the picker")
	flags.StringVar(&o.revision, "revision", "", "commit that the source is of")
	flags.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	if err := parse(flags, args); err != nil {
		return err
	}
	var err error
	if o.platforms, err = parsePlatforms(platforms); err != nil {
		return err
	}
	if o.created, err = createdAt(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	return build(ctx, o)
}

func runPush(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image push", flag.ContinueOnError)
	archive := flags.String("archive", "dist/warmpath-epp.oci.tar", "OCI archive to push")
	to := flags.String("to", "", "where to: registry/repository:tag (required)")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *to == "" {
		return errors.New("push needs -to registry/repository:tag")
	}
	return push(ctx, *archive, *to)
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s takes flags only, not %q", flags.Name(), strings.Join(flags.Args(), " "))
	}
	return nil
}

// createdAt reads SOURCE_DATE_EPOCH. Without it the image says 1970, since the
// time of the build would make every image another one.
func createdAt(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q, want seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
