package interop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/recovery"
)

// waitIndex waits until the picker's index and the workers' events tell the same.
func waitIndex(t *testing.T, p *Picker, events *Recorder) *Ledger {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	var ledger *Ledger
	if err := poll(ctx, func() error {
		ledger = ReadLedger(events.Events())
		if len(ledger.Lost) > 0 {
			t.Fatalf("events: %q", ledger.Lost)
		}
		if err := p.compareHost(ctx, ledger.Host); err != nil {
			return err
		}
		return p.compare(ctx, ledger.Held)
	}); err != nil {
		t.Fatal(err)
	}
	return ledger
}

// compareHost says how the picker's count of blocks in host memory differs from
// what ranks hold there. Which blocks those are the picker does not show.
func (p *Picker) compareHost(ctx context.Context, held map[fleet.Key]map[block.Chain]bool) error {
	for key, blocks := range held {
		n, err := p.sum(ctx, "warmpath_worker_blocks", append(labelsOf(key), `tier="host_pinned"`)...)
		if err == nil && int(n) != len(blocks) {
			err = fmt.Errorf("the picker counts %v blocks of %s in host memory, events say %d", n, key, len(blocks))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare says how the picker's index differs from what ranks hold on the device.
func (p *Picker) compare(ctx context.Context, held map[fleet.Key]map[block.Chain]bool) error {
	index, err := p.Index(ctx)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(Holders(held), index); diff != "" {
		return fmt.Errorf("index (-held +index):\n%s", diff)
	}
	return nil
}

// step is a request of a fixed sequence.
type step struct {
	on        int // which holder, modulo their number
	prompt    []uint32
	maxTokens int
}

// fixedSequence makes every kind of change to caches of 32 blocks a rank: prompts
// that go on from others, prompts that share a head, output that fills blocks, a
// block that repeats, one that is too short to be kept, evictions and returns.
func fixedSequence() []step {
	const short, long = 4, 3 * blockSize
	var steps []step
	head := prompt(1)[:4*blockSize]
	for conversation := range 3 {
		text := slices.Clone(head)
		for turn := range 3 {
			text = append(text, prompt(uint64(10 + 10*conversation + turn))[:2*blockSize+5]...)
			steps = append(steps, step{conversation, slices.Clone(text), short})
		}
	}
	for i := range 4 {
		steps = append(steps, step{i, append(slices.Clone(head), prompt(uint64(50+i))...), short})
	}
	steps = append(
		steps,
		step{0, prompt(60), long}, step{1, prompt(60), long},
		step{2, slices.Repeat(prompt(61)[:blockSize], 5), short},
		step{3, prompt(62)[:blockSize-1], short},
	)
	for i := range 28 {
		steps = append(steps, step{i, prompt(uint64(70 + i)), short})
	}
	return append(steps, step{0, prompt(97), short}, step{1, prompt(70), short}, step{2, slices.Clone(head), long})
}

// waitHeld waits until the events say that what is expected is held, and maybe
// more.
func (e expect) waitHeld(t *testing.T, events *Recorder) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		ledger := ReadLedger(events.Events())
		for key, chains := range e {
			for c := range chains {
				if !ledger.Held[key][c] {
					return fmt.Errorf("worker %s does not hold all of the last prompt sent to it", key)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// waitWorkers waits until the picker's index holds what every rank itself says
// that it holds.
func waitWorkers(t *testing.T, s *Stack, p *Picker, keys []fleet.Key) {
	t.Helper()
	r := &recoveryRig{stack: s, client: startRecovery(t, recovery.Config{}), sources: mustSources(t, s)}
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		all := map[fleet.Key]map[block.Chain]bool{}
		for _, key := range keys {
			all[key] = held(t, key, r.ask(t, key, nil))
		}
		return p.compare(t.Context(), all)
	}); err != nil {
		t.Fatal(err)
	}
}

// runSequence sends the fixed sequence, one request after the other, to workers
// whose caches it overfills, and checks the index. All events come on one subject.
func runSequence(t *testing.T, cfg StackConfig, subject string) {
	t.Helper()
	cfg.NATSURL, cfg.BlockSize, cfg.Blocks = StartJetStream(t), blockSize, 32
	events := Record(t, cfg.NATSURL, "kv-events")
	s := StartStack(t, cfg)
	p := StartPicker(t, s, PickerConfig{Binary: pickerBinary(t)})

	var pins []Pin
	var keys []fleet.Key
	for _, role := range []fleet.Role{fleet.Aggregated, fleet.Prefill} {
		for _, id := range s.Workers(role) {
			for rank := range uint32(s.cfg.Ranks) {
				keys = append(keys, fleet.Key{ID: id, Rank: rank})
			}
		}
	}
	decode := s.Workers(fleet.Decode)
	for i, key := range keys {
		pin := Pin{Worker: key}
		if len(decode) > 0 {
			pin = Pin{Worker: fleet.Key{ID: decode[i%len(decode)]}, Prefill: &key}
		}
		pins = append(pins, pin)
	}
	last := expect{}
	for _, q := range fixedSequence() {
		key := keys[q.on%len(keys)]
		sendLong(t, s, pins[q.on%len(pins)], BothNames, q.prompt, q.maxTokens)
		delete(last, key)
		last.add(key, q.prompt)
	}

	last.waitHeld(t, events)
	ledger := waitIndex(t, p, events)
	if ledger.Removed == 0 {
		t.Error("no worker has removed a block")
	}
	for _, key := range keys {
		if n := len(ledger.Held[key]); n < 10 || n > cfg.Blocks {
			t.Errorf("worker %s holds %d blocks, of %d that fit", key, n, cfg.Blocks)
		}
	}
	if got := slices.Collect(maps.Keys(ledger.Events)); !slices.Equal(got, []string{subject}) {
		t.Errorf("events on subjects %q, want only %q", got, subject)
	}
	if !cfg.Durable {
		waitWorkers(t, s, p, keys)
	}
	p.checkNothingOdd(t)
}

func TestIndexEqualsWorkers(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		runSequence(t, StackConfig{Version: version, Ranks: 2, Roles: map[fleet.Role]int{fleet.Aggregated: 2}},
			kvSubject(version, "backend"))
	})
}

func TestIndexEqualsPrefillWorkers(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		runSequence(t, StackConfig{Version: version, Roles: map[fleet.Role]int{fleet.Prefill: 2, fleet.Decode: 2}},
			kvSubject(version, "prefill"))
	})
}

// TestIndexEqualsDurableWorkers runs workers whose events go to a JetStream stream:
// as JSON, without an envelope, on subjects of another form (dynamo.md 1.8). The
// picker hears them as a plain subscriber. Such workers answer no queries.
func TestIndexEqualsDurableWorkers(t *testing.T) {
	forVersions(t, []string{"1.2.1", "1.3.1"}, func(t *testing.T, version string) {
		runSequence(t, StackConfig{Version: version, Ranks: 2, Durable: true, Roles: map[fleet.Role]int{fleet.Aggregated: 2}},
			"namespace-dynamo-component-backend-kv-events.kv-events")
	})
}
