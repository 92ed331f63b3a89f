package chaos

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestSoak makes trouble of all kinds in random order for as long as -soak says.
func TestSoak(t *testing.T) {
	overTransports(t, serverOptions{pings: true}, func(r *rig) {
		rng := rand.New(rand.NewPCG(*seed, 100))
		troubles := []struct {
			name string
			make func() (tainted []*worker)
		}{
			{"kill the server", r.killServer},
			{"freeze the server", r.freezeServer},
			{"cut the connection", func() []*worker { return r.cutConnection(0) }},
			{"partition", func() []*worker { return r.cutConnection(1 + rng.IntN(2)) }},
			{"short silence", r.shortSilence},
			{"long silence", r.silence},
			{"slow consumer", r.slowDown},
			{"restarts", func() []*worker { return r.restartSome(rng) }},
		}
		var doubtful []*worker
		for end := time.Now().Add(*soakTime); time.Now().Before(end); {
			trouble := troubles[rng.IntN(len(troubles))]
			start := time.Now()
			doubtful = trouble.make()
			r.t.Logf("%s took %s and leaves %d workers in doubt", trouble.name, time.Since(start).Round(time.Millisecond), len(doubtful))
			if rng.IntN(3) == 0 {
				r.mend(doubtful)
			}
		}
		r.mend(doubtful)
	})
}

// restartSome starts some workers over, with all others talking.
func (r *rig) restartSome(rng *rand.Rand) []*worker {
	r.t.Helper()
	some := slices.Clone(r.crew.workers)
	rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	r.crew.restart(some[:1+rng.IntN(len(some))]...)
	return r.settle().tainted
}
