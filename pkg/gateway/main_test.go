package gateway

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		leaveOrphan()
		return
	}
	goleak.VerifyTestMain(m)
}
