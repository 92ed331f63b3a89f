package eventplane

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsClock) }

// natsClock is the clock of nats-server's file stores: one that was ended amid its
// work may leave it running.
var natsClock = goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1")
