package bench

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// audience is an index that hears two publishers.
type audience struct {
	t     *testing.T
	index *index.Index
	last  map[uint64]uint64 // event id, by worker
}

// hear decodes a step's messages, whose event ids must go on from the last one.
func (a *audience) hear(f form, s *step, sequence, id *uint64) {
	a.t.Helper()
	subject, err := dynamo.ParseSubject(f.subject)
	if err != nil {
		a.t.Fatal(err)
	}
	var d dynamo.Decoder
	events := 0
	for i := range s.messages {
		m := &s.messages[i]
		m.stamp(sequence, id, time.UnixMilli(1<<41))
		env, err := d.Decode(m.data, subject.Scope, func(ev *kvevent.Event) {
			events++
			if want, heard := a.last[ev.WorkerID]; heard && ev.ID != want+1 {
				a.t.Fatalf("worker %d says event %d after %d", ev.WorkerID, ev.ID, want)
			}
			a.last[ev.WorkerID] = ev.ID
			if err := a.index.Apply(ev); err != nil {
				a.t.Fatal(err)
			}
		})
		if err != nil {
			a.t.Fatal(err)
		}
		if env.Sequence != *sequence-1 || env.PublishedAt != 1<<41 || env.PublisherID != f.publisher {
			a.t.Fatalf("envelope %+v, sequence %d", env, *sequence)
		}
	}
	if events != s.events {
		a.t.Fatalf("%d events, %d promised", events, s.events)
	}
}

// sees says whether half a prompt is in the index.
func (a *audience) sees(s *script, prompt, half int) bool {
	slot, _ := a.index.Lookup(fleet.Key{ID: s.worker})
	var m index.Match
	chains := s.chains(prompt, half)
	a.index.Match(chains, &m)
	return m.Depth(slot).Device == len(chains)
}

// A publisher's steps are visible when they are taken in and not before, keep the
// index at one size, and never say anything that the index does not understand.
func TestScript(t *testing.T) {
	for _, array := range []bool{true, false} {
		a := &audience{t: t, index: index.New(), last: map[uint64]uint64{}}
		stored := uint64(0)
		for n := range 2 {
			s := newScript(n)
			f := newForm(array, s)
			opening, err := s.opening(f)
			if err != nil {
				t.Fatal(err)
			}
			round, err := s.round(f)
			if err != nil {
				t.Fatal(err)
			}
			sequence, id := uint64(firstID), uint64(firstID)
			for i := range opening {
				a.hear(f, &opening[i], &sequence, &id)
			}
			if stored += openingBlocks; a.index.Stats().Stored != stored {
				t.Fatalf("%d blocks stored, want %d", a.index.Stats().Stored, stored)
			}
			for i := range len(round) + 3 { // and around the corner
				st := &round[i%len(round)]
				if a.sees(s, st.prompt, st.half) {
					t.Fatalf("step %d is visible before it is said", i)
				}
				a.hear(f, st, &sequence, &id)
				stored += halfBlocks
				if !a.sees(s, st.prompt, st.half) {
					t.Fatalf("step %d is not visible", i)
				}
			}
			if want := (n + 1) * openingBlocks; a.index.Stats().Entries != want {
				t.Errorf("%d entries, want %d", a.index.Stats().Entries, want)
			}
		}
		got := a.index.Stats()
		if got.Stored != stored || got.UnknownParents+got.UnknownRemovals+got.Duplicates+got.Replaced != 0 {
			t.Errorf("arrays %v: %+v, want %d stored and no trouble", array, got, stored)
		}
	}
}

// Numbers are set where the decoder reads them, in all events of a message.
func TestMessageNumbers(t *testing.T) {
	s := newScript(0)
	round, err := s.round(newForm(true, s))
	if err != nil {
		t.Fatal(err)
	}
	m := &round[0].messages[0]
	if len(m.ids) != round[0].events || len(m.sequence) != 8 || len(m.at) != 8 {
		t.Fatalf("%d of %d ids, %d and %d bytes", len(m.ids), round[0].events, len(m.sequence), len(m.at))
	}
	sequence, id := uint64(firstID+7), uint64(firstID+100)
	m.stamp(&sequence, &id, time.Now())
	if sequence != firstID+8 || id != firstID+100+uint64(len(m.ids)) {
		t.Errorf("next are %d and %d", sequence, id)
	}
	for i, place := range m.ids {
		if got := binary.BigEndian.Uint64(place); got != firstID+100+uint64(i) {
			t.Errorf("event %d has id %d", i, got)
		}
	}
}
