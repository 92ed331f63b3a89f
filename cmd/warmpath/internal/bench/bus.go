package bench

import (
	"context"
	"encoding/json"
	"io"
)

// NATSServer runs a NATS server until ctx ends, and logs its address like a
// picker.
func NATSServer(ctx context.Context, stderr io.Writer) error {
	bus, err := startNATS()
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
