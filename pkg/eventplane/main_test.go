package eventplane

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsLeaks()...) }

// natsLeaks are goroutines that nats-server itself may leave behind: a server that
// is ended while it makes a stream never stops the store of that stream.
func natsLeaks() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{
		goleak.IgnoreTopFunction(server + "/ats.Register.func1"),
		goleak.IgnoreAnyFunction(server + ".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(server + ".(*msgBlock).flushLoop"),
		goleak.IgnoreAnyFunction(server + ".(*consumerFileStore).flushLoop"),
	}
}
