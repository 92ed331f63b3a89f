package bench

import (
	"context"
	"encoding/json"
	"io"
	"os"
)

// NATSServer runs a NATS server, with JetStream in files of its own or without,
// until ctx ends, and logs its address like a picker.
func NATSServer(ctx context.Context, jetStream bool, stderr io.Writer) error {
	dir := ""
	if jetStream {
		var err error
		if dir, err = os.MkdirTemp("", "warmpath-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	bus, err := startNATS(dir)
	if err != nil {
		return err
	}
	defer bus.WaitForShutdown()
	defer bus.Shutdown()
	if err := json.NewEncoder(stderr).Encode(map[string]string{"msg": "serving", "nats": bus.ClientURL()}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
