package eventplane

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

const (
	benchWorkers = 16
	benchBlocks  = 64 // of each message: a prompt of 1024 tokens at block size 16
	benchPrompts = 64 // that a worker goes through before it starts again
)

// benchMessage is an encoded message whose event id can be set in place.
type benchMessage struct {
	msg    *nats.Msg
	worker int
	id     []byte // 8 bytes of the event id
}

// benchMessages is a round of events after which every worker holds what it did
// before: each prompt is removed and stored again. Half of all messages store.
func benchMessages(b *testing.B, ids *[benchWorkers]uint64) []benchMessage {
	b.Helper()
	var round []benchMessage
	for prompt := range benchPrompts {
		for w := range benchWorkers {
			hashes := make([]uint64, benchBlocks)
			for i := range hashes {
				hashes[i] = uint64(prompt*benchBlocks+i)*0x9e3779b97f4a7c15 + uint64(w/2) // each shared by two workers
			}
			k := fleet.Key{ID: 1<<60 + uint64(w)}
			for _, ev := range []kvevent.Event{removed(k, 1<<40, hashes...), stored(k, 1<<40, hashes...)} {
				data := encode(b, dynamo.Gen15, ev)
				at := bytes.Index(data, []byte("event_id\xcf")) + len("event_id\xcf")
				round = append(round, benchMessage{&nats.Msg{Subject: endpointSubject, Data: data}, w, data[at : at+8]})
			}
			ids[w] = 1 << 40
		}
	}
	return round
}

// stamp gives a message the next id of its worker.
func (m *benchMessage) stamp(ids *[benchWorkers]uint64) {
	ids[m.worker]++
	binary.BigEndian.PutUint64(m.id, ids[m.worker])
}

// checkBench makes sure that what was measured did happen.
func checkBench(b *testing.B, r *rig) {
	b.Helper()
	for k, w := range r.plane.Workers() {
		if w.Gaps+w.Restarts+w.Duplicates+w.Refused != 0 {
			b.Fatalf("worker %v: %+v", k, w)
		}
	}
	if s := r.index.Stats(); s.UnknownParents+s.Replaced+s.Duplicates != 0 || r.plane.Stats().BadMessages != 0 {
		b.Fatalf("%+v, %+v", s, r.plane.Stats())
	}
}

// BenchmarkApplyWire takes in encoded messages, without a network: one operation
// is one message of 64 blocks, stored or removed.
func BenchmarkApplyWire(b *testing.B) {
	r := newRig(b, "", "dynamo")
	var ids [benchWorkers]uint64
	round := benchMessages(b, &ids)
	for i := range round { // warm: maps have their size, all is held
		round[i].stamp(&ids)
		r.plane.receive(round[i].msg)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(round[1].msg.Data)))
	i := 0
	for b.Loop() {
		m := &round[i%len(round)]
		m.stamp(&ids)
		r.plane.receive(m.msg)
		i++
	}
	b.ReportMetric(float64(b.N*benchBlocks)/b.Elapsed().Seconds(), "blocks/s")
	checkBench(b, r)
}

// BenchmarkApplyNATS is the same over a real server on the loopback, publisher and
// server included.
func BenchmarkApplyNATS(b *testing.B) {
	r, conn := startRig(b, "dynamo")
	var ids [benchWorkers]uint64
	round := benchMessages(b, &ids)
	b.ReportAllocs()
	b.SetBytes(int64(len(round[1].msg.Data)))
	b.ResetTimer()
	for i := range b.N {
		m := &round[i%len(round)]
		m.stamp(&ids)
		publish(b, conn, m.msg.Subject, m.msg.Data)
	}
	waitFor(b, "not all messages arrive", func() bool { return r.plane.Stats().Messages == uint64(b.N) })
	b.StopTimer()
	b.ReportMetric(float64(b.N*benchBlocks)/b.Elapsed().Seconds(), "blocks/s")
	checkBench(b, r)
}
