package eventplane

import (
	"maps"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// TestBothWirings moves one fleet from aggregated to disaggregated and then to a
// newer release, without a word to the plane.
func TestBothWirings(t *testing.T) {
	r, conn := startRig(t, "dynamo")
	a, b, c := fleet.Key{ID: 1}, fleet.Key{ID: 1<<64 - 1, Rank: 1}, fleet.Key{ID: 3}
	gen12 := func(component string, ev kvevent.Event) {
		publish(t, conn, dynamo.EventSubject(dynamo.Gen12, "dynamo", component, ""), encode(t, dynamo.Gen12, ev))
	}
	gen12("backend", stored(a, 1, 1, 2))
	gen12("backend", stored(b, 1, 1))
	// The same workers, and another, as prefill workers.
	gen12("prefill", stored(a, 2, 3))
	gen12("prefill", stored(b, 2, 2))
	gen12("prefill", stored(c, 1, 1))
	r.barrier(conn)
	r.wantHeld(a, 3)
	r.wantHeld(b, 2)
	r.wantHeld(c, 1)

	// Newer releases: more events per message, names encoded, other publishers. What
	// the older processes held is gone with them, said or not.
	gen15 := func(component, endpoint string, events ...kvevent.Event) {
		publish(t, conn, dynamo.EventSubject(dynamo.Gen15, "dynamo", component, endpoint), encode(t, dynamo.Gen15, events...))
	}
	gen15("prefill", "generate", stored(a, 1, 4), stored(a, 2, 5), removed(a, 3, 4))
	gen15("pre.fill ü%", "gene.rate", stored(b, 3, 3)) // two ids after the old process's last
	r.barrier(conn)
	r.wantHeld(a, 1)
	r.wantHeld(b, 1)
	r.wantHeld(c, 1)
	r.wantWorker(a, WorkerStats{LastID: 3, Events: 5, Restarts: 1})
	r.wantWorker(b, WorkerStats{LastID: 3, Events: 3, Restarts: 1, Gaps: 1, Missed: 2})
	r.wantWorker(c, WorkerStats{LastID: 1, Events: 1})

	s := r.plane.Stats()
	want := map[string]uint64{"backend": 2, "prefill": 4, "pre.fill ü%": 1}
	if s.Messages != 7 || s.BadMessages != 0 || !maps.Equal(s.ByComponent, want) {
		t.Errorf("%+v, want 7 messages by component %v", s, want)
	}
	r.wantLost(map[fleet.Key]int{a: 1, b: 1})
}

// TestNamespaces: the base namespace and the suffixes that the operator adds are
// ours, two of them at once during an upgrade. All others are counted only.
func TestNamespaces(t *testing.T) {
	for _, base := range []string{"default-demo", "Team.a x", "dynamo"} {
		t.Run(base, func(t *testing.T) {
			r, conn := startRig(t, base)
			id := uint64(0)
			send := func(gen dynamo.Generation, namespace string) fleet.Key {
				id++
				k := fleet.Key{ID: id}
				publish(t, conn, dynamo.EventSubject(gen, namespace, "backend", "generate"), encode(t, gen, stored(k, 1, 1)))
				return k
			}
			plain := base == "dynamo" || base == "default-demo"
			ours, others := 0, 0
			for _, namespace := range []string{base, base + "-0a1b2c3d", base + "-ffffffff", base + "-legacy"} {
				for _, gen := range []dynamo.Generation{dynamo.Gen12, dynamo.Gen14, dynamo.Gen15} {
					if gen == dynamo.Gen12 && !plain {
						continue // such names break the older subjects
					}
					k := send(gen, namespace)
					ours++
					r.barrier(conn)
					r.wantHeld(k, 1)
				}
			}
			before := r.plane.Stats().OtherSpace
			for _, namespace := range []string{
				"other", "other-0a1b2c3d", base + "2", base + "-0a1b2c3", base + "-0A1B2C3D", base + "-0a1b2c3d4",
				base + "-canary", base + "_legacy", "x" + base, base + "-0a1b2c3d-legacy",
			} {
				for _, gen := range []dynamo.Generation{dynamo.Gen12, dynamo.Gen15} {
					if gen == dynamo.Gen12 && !plain {
						continue
					}
					send(gen, namespace)
					others++
				}
			}
			r.barrier(conn)
			s := r.plane.Stats()
			if got := s.OtherSpace - before; got != uint64(others)+uint64(len(r.barriers())) {
				t.Errorf("%d messages of other namespaces, want %d and those of the barrier", got, others)
			}
			if s.Messages != uint64(ours) || s.BadMessages != 0 || r.index.Stats().Workers != ours {
				t.Errorf("%+v, %d workers, want %d messages", s, r.index.Stats().Workers, ours)
			}
		})
	}
}

// TestDottedNamespace: a name with dots is one token in endpoint scope. In the
// older scope it makes more tokens, which nobody can tell apart: not heard.
func TestDottedNamespace(t *testing.T) {
	r, conn := startRig(t, "team.a")
	k := fleet.Key{ID: 7}
	publish(t, conn, dynamo.EventSubject(dynamo.Gen12, "team.a", "backend", ""), encode(t, dynamo.Gen12, stored(k, 1, 1)))
	publish(t, conn, dynamo.EventSubject(dynamo.Gen15, "team.a", "backend", "generate"), encode(t, dynamo.Gen15, stored(k, 1, 5, 6)))
	r.barrier(conn)
	r.wantHeld(k, 2)
	if s := r.plane.Stats(); s.Messages != 1 {
		t.Errorf("%+v, want 1 message", s)
	}
}

// TestEveryNamespace: without a base, all are heard.
func TestEveryNamespace(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	r := newRig(t, address, "")
	r.run()
	conn := connect(t, address)
	r.listening(conn)
	for i, namespace := range []string{"a", "b-0a1b2c3d", "anything else"} {
		k := fleet.Key{ID: uint64(i + 1)}
		publish(t, conn, dynamo.EventSubject(dynamo.Gen15, namespace, "c", "e"), encode(t, dynamo.Gen15, stored(k, 1, 1)))
	}
	r.barrier(conn)
	if s := r.plane.Stats(); s.OtherSpace != 0 || s.Decode.Events != 3 || r.index.Stats().Workers != 3 {
		t.Errorf("%+v, %+v", s, r.index.Stats())
	}
}

// TestOtherSubjects: what is not about KV events never reaches the plane.
func TestOtherSubjects(t *testing.T) {
	r, conn := startRig(t, "dynamo")
	before := r.plane.Stats()
	for _, subject := range []string{
		"namespace.dynamo.kv_metrics", "namespace.dynamo.component.backend.active_sequences_events",
		"namespace.dynamo.component.backend.endpoint.generate.kv_metrics", "namespace.dynamo.kv-events",
		"x.dynamo.component.backend.kv-events",
		"namespace.dynamo.component.backend.kv-events.x",
	} {
		publish(t, conn, subject, encode(t, dynamo.Gen12, stored(fleet.Key{ID: 1}, 1, 1)))
	}
	r.barrier(conn)
	s := r.plane.Stats()
	if s.Messages != 0 || s.OtherSpace != before.OtherSpace+2 || len(r.index.Workers()) != 0 {
		t.Errorf("%+v after %+v: want nothing but the barrier's two", s, before)
	}
}
