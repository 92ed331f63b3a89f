package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// natsBinary is the nats-server that every test runs.
var natsBinary string

var (
	soakTime = flag.Duration("soak", 3*time.Second, "how long TestSoak makes trouble")
	seed     = flag.Uint64("seed", 1, "what the workers say, and in what order TestSoak makes trouble")
)

// parallel is how many tests run at once, unless -parallel says otherwise: they
// mostly wait.
const parallel = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(parallel) // a number always fits
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	var err error
	natsBinary, err = installNATS(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for something that takes milliseconds to a
// few seconds on an idle machine.
const patience = 60 * time.Second

// soon is how long it may take until all is known of workers that answer. It is less
// than the minute after which one is asked again that was asked in vain.
const soon = 30 * time.Second

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !within(patience, ok) {
		t.Fatalf("waited %s in vain until: %s", patience, what)
	}
}

// progress waits until a condition holds, and for as long as a count grows: how
// fast it does is the machine's affair.
func progress(t *testing.T, what string, count func() uint64, ok func() bool) {
	t.Helper()
	for n := count(); !within(patience, ok); n = count() {
		if count() == n {
			t.Fatalf("waited %s in vain until: %s", patience, what)
		}
	}
}

// within says whether a condition comes to hold in time.
func within(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) { // between two looks
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
