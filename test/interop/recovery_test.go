package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
	"github.com/warmpath/warmpath/pkg/recovery"
)

// mustSources returns where each worker rank of a stack answers queries.
func mustSources(t *testing.T, s *Stack) map[fleet.Key]recovery.Source {
	t.Helper()
	sources, err := s.RecoverySources()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// startRecovery starts a client until the test ends.
func startRecovery(t *testing.T, cfg recovery.Config) *recovery.Client {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	// Workers share the machine with much else.
	cfg.DialTimeout, cfg.DialBackTimeout = time.Minute, time.Minute
	c, err := recovery.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("recovery client: %v", err)
		}
	})
	return c
}

// recoveryRig is a stack whose workers are asked what they hold.
type recoveryRig struct {
	stack   *Stack
	events  *Recorder
	client  *recovery.Client
	sources map[fleet.Key]recovery.Source
}

func (r *recoveryRig) ask(t *testing.T, key fleet.Key, from *uint64) recovery.Answer {
	t.Helper()
	a, err := r.client.Query(t.Context(), r.sources[key].Target, recovery.Request{WorkerID: key.ID, Rank: key.Rank, From: from})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// held applies an answer to nothing and returns what it says that the rank holds.
func held(t *testing.T, key fleet.Key, a recovery.Answer) map[block.Chain]bool {
	t.Helper()
	l := ReadLedger(nil)
	for i, e := range a.Events {
		if a.Kind == recovery.TreeDump {
			e.ID = uint64(i) + 1 // what the ledger expects; a dump's own ids mean nothing
		}
		l.apply(&e)
	}
	if len(l.Lost) > 0 {
		t.Errorf("%s of worker %s: %q", a.Kind, key, l.Lost)
	}
	if others := slices.DeleteFunc(slices.Collect(maps.Keys(l.Held)), func(k fleet.Key) bool { return k == key }); len(others) > 0 {
		t.Errorf("%s of worker %s is also about %v", a.Kind, key, others)
	}
	if l.Held[key] == nil {
		return map[block.Chain]bool{}
	}
	return l.Held[key]
}

// heard returns the events of a rank as they came over NATS.
func heard(t *testing.T, messages []Event, key fleet.Key) []kvevent.Event {
	t.Helper()
	var d dynamo.Decoder
	var all []kvevent.Event
	for _, m := range messages {
		subject, err := dynamo.ParseSubject(m.Subject)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Decode(m.Data, subject.Scope, func(e *kvevent.Event) {
			if e.WorkerID == key.ID && e.Rank == key.Rank {
				c := *e
				c.Blocks, c.Gone, c.Media = slices.Clone(e.Blocks), slices.Clone(e.Gone), nil
				all = append(all, c)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// check asks a rank for everything and for its events, and compares both with
// what it published. It waits for events that are on their way, and returns the
// number of events.
func (r *recoveryRig) check(t *testing.T, key fleet.Key) uint64 {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	var last uint64
	if err := poll(ctx, func() error {
		messages := r.events.Events()
		ledger := ReadLedger(messages)
		if len(ledger.Lost) > 0 {
			t.Fatalf("events: %q", ledger.Lost)
		}
		last = ledger.lastID[key]
		dump := r.ask(t, key, nil)
		if dump.Kind != recovery.TreeDump {
			t.Fatalf("asked for all: %s", dump.Kind)
		}
		if dump.LastEventID != last {
			return fmt.Errorf("worker %s answers up to event %d, NATS brought %d", key, dump.LastEventID, last)
		}
		want := ledger.Held[key]
		if len(want) == 0 {
			return fmt.Errorf("worker %s holds nothing yet", key)
		}
		if diff := cmp.Diff(want, held(t, key, dump)); diff != "" {
			return fmt.Errorf("dump of worker %s (-NATS +dump):\n%s", key, diff)
		}
		one := uint64(1)
		replay := r.ask(t, key, &one)
		if replay.Kind != recovery.Events || replay.LastEventID != last {
			return fmt.Errorf("worker %s from event 1: %s up to %d, want Events up to %d", key, replay.Kind, replay.LastEventID, last)
		}
		if diff := cmp.Diff(want, held(t, key, replay)); diff != "" {
			return fmt.Errorf("events of worker %s (-NATS +answer):\n%s", key, diff)
		}
		if diff := cmp.Diff(heard(t, messages, key), replay.Events); diff != "" {
			return fmt.Errorf("events of worker %s one by one (-NATS +answer):\n%s", key, diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return last
}

// fill sends prompts of five blocks each to a rank.
func (r *recoveryRig) fill(t *testing.T, key fleet.Key, first, n uint64) {
	t.Helper()
	var work errgroup.Group
	work.SetLimit(4)
	for seed := first; seed < first+n; seed++ {
		work.Go(func() error {
			reply, err := Post(t.Context(), r.stack.FrontendURL(), Pin{Worker: key}.Headers(BothNames),
				Completion{Model: r.stack.Model(), Prompt: prompt(seed), MaxTokens: 4})
			if err == nil && reply.Status != 200 {
				err = fmt.Errorf("status %d: %s", reply.Status, reply.Body)
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestRecovery(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		server := StartNATS(t)
		r := &recoveryRig{events: Record(t, server, "kv-events"), client: startRecovery(t, recovery.Config{})}
		r.stack = StartStack(t, StackConfig{
			Version: version, NATSURL: server, BlockSize: blockSize, Ranks: 2,
			Roles: map[fleet.Role]int{fleet.Aggregated: 2},
		})
		r.sources = mustSources(t, r.stack)
		var keys []fleet.Key
		for _, id := range r.stack.Workers(fleet.Aggregated) {
			keys = append(keys, fleet.Key{ID: id}, fleet.Key{ID: id, Rank: 1})
		}
		for _, key := range keys {
			if _, ok := r.sources[key]; !ok || len(r.sources) != len(keys) {
				t.Fatalf("discovery has %v, want %v", slices.Collect(maps.Keys(r.sources)), keys)
			}
		}

		// An empty rank, then prompts that fit, then more than fit: 64 blocks a rank.
		empty := r.ask(t, keys[0], nil)
		if empty.Kind != recovery.TreeDump || len(empty.Events) != 0 || empty.LastEventID != 0 {
			t.Errorf("an empty rank answers %+v", empty)
		}
		for i, key := range keys {
			r.fill(t, key, uint64(1000*i), uint64(3+i))
			r.check(t, key)
		}
		for i, key := range keys {
			r.fill(t, key, uint64(1000*i+500), 20)
			r.check(t, key)
		}
		if ReadLedger(r.events.Events()).Removed == 0 {
			t.Error("no worker has removed a block")
		}
		r.checkTail(t, keys[3])
		r.checkRing(t, keys[2])
		r.checkRefusals(t, keys[0])
	})
}

// checkTail closes a gap: what comes from some event on is what NATS brought. It
// waits for events that are on their way.
func (r *recoveryRig) checkTail(t *testing.T, key fleet.Key) {
	t.Helper()
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	if err := poll(ctx, func() error {
		all := heard(t, r.events.Events(), key)
		last := uint64(len(all))
		for _, from := range []uint64{2, last / 2, last} {
			a := r.ask(t, key, &from)
			if a.Kind != recovery.Events || a.LastEventID != last {
				return fmt.Errorf("from event %d: %s up to %d, want Events up to %d", from, a.Kind, a.LastEventID, last)
			}
			if diff := cmp.Diff(all[from-1:], a.Events); diff != "" {
				return fmt.Errorf("from event %d (-NATS +answer):\n%s", from, diff)
			}
		}
		next := last + 1
		if a := r.ask(t, key, &next); a.Kind != recovery.TooNew || a.LastEventID != last {
			return fmt.Errorf("from the next event: %+v, want TooNew after %d", a, last)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkRing makes a rank publish more events than its ring holds, 1024. From then
// on its first events are gone, and asking for them gives all that is held.
func (r *recoveryRig) checkRing(t *testing.T, key fleet.Key) {
	t.Helper()
	const ring = 1024
	for sent := uint64(0); ReadLedger(r.events.Events()).lastID[key] <= ring+100; sent += 50 {
		if sent > 10*ring {
			t.Fatalf("%d prompts do not fill the ring", sent)
		}
		r.fill(t, key, 1_000_000+sent, 50)
	}
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	one := uint64(1)
	if err := poll(ctx, func() error {
		messages := r.events.Events()
		ledger := ReadLedger(messages)
		last := ledger.lastID[key]
		dump := r.ask(t, key, &one)
		if dump.Kind != recovery.TreeDump || dump.LastEventID != last {
			return fmt.Errorf("from event 1 of %d: %s up to %d, want TreeDump", last, dump.Kind, dump.LastEventID)
		}
		if diff := cmp.Diff(ledger.Held[key], held(t, key, dump)); diff != "" {
			return fmt.Errorf("dump (-NATS +dump):\n%s", diff)
		}
		from := last - ring + 1
		tail := r.ask(t, key, &from)
		if tail.Kind != recovery.Events {
			return fmt.Errorf("from event %d of %d: %s, want Events", from, last, tail.Kind)
		}
		if diff := cmp.Diff(heard(t, messages, key)[from-1:], tail.Events); diff != "" {
			return fmt.Errorf("from event %d (-NATS +answer):\n%s", from, diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkRefusals asks in wrong ways. Each ends at once, in an error that tells.
func (r *recoveryRig) checkRefusals(t *testing.T, key fleet.Key) {
	t.Helper()
	target := r.sources[key].Target
	_, err := r.client.Query(t.Context(), target, recovery.Request{WorkerID: key.ID + 1, Rank: key.Rank})
	if remote, ok := errors.AsType[*recovery.RemoteError](err); !ok || !strings.Contains(remote.Message, "worker_id mismatch") {
		t.Errorf("another worker's id: %v", err)
	}
	from, to := uint64(3), uint64(1)
	a, err := r.client.Query(t.Context(), target, recovery.Request{WorkerID: key.ID, Rank: key.Rank, From: &from, To: &to})
	if err != nil || a.Kind != recovery.InvalidRange || *a.From != 3 || *a.To != 1 {
		t.Errorf("from 3 to 1: %+v, %v", a, err)
	}
	if target.Codec == recovery.Msgpack {
		target.Codec = recovery.JSON
		a, err := r.client.Query(t.Context(), target, recovery.Request{WorkerID: key.ID, Rank: key.Rank})
		if err != nil || !maps.Equal(held(t, key, a), held(t, key, r.ask(t, key, nil))) {
			t.Errorf("in JSON: %v, %d events", err, len(a.Events))
		}
	}
	// An answer that is given up does the worker no harm.
	small := startRecovery(t, recovery.Config{MaxResponseBytes: 1000})
	if _, err := small.Query(t.Context(), target, recovery.Request{WorkerID: key.ID, Rank: key.Rank}); !errors.Is(err, recovery.ErrTooLarge) {
		t.Errorf("an answer that is too large: %v", err)
	}
	r.check(t, key)
	unknown := r.sources[key].Target
	unknown.Path = strings.Replace(unknown.Path, "worker_kv", "no_such", 1)
	_, err = r.client.Query(t.Context(), unknown, recovery.Request{WorkerID: key.ID, Rank: key.Rank})
	if remote, ok := errors.AsType[*recovery.RemoteError](err); !ok || !strings.Contains(remote.Message, "no_such") {
		t.Errorf("an unknown endpoint: %v", err)
	}
}
