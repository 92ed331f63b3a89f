package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

const (
	// heldPrompts are in a publisher's cache once it is full: the oldest leaves for
	// each that comes. It goes through twice as many, then starts again.
	heldPrompts = 64
	halfBlocks  = 64 // of a prompt: what one step stores, and what it removes
	// firstID makes event ids, and sequences, of a size that does not change.
	firstID = 1 << 40
)

// script is what one publisher says: the system prompts, which all share, then
// prompts of its own that continue them. Both processes know it.
type script struct {
	worker  uint64
	prompts prompts
}

func newScript(publisher int) *script {
	s := &script{worker: 1<<52 + uint64(publisher)}
	common, own := rand.New(rand.NewPCG(1, 9)), rand.New(rand.NewPCG(2, uint64(publisher)))
	var shared [systems][]block.Hash
	for i := range shared {
		shared[i] = freshHashes(common, sharedBlocks)
	}
	for i := range 2 * heldPrompts {
		s.prompts.add(slices.Concat(shared[i%systems], freshHashes(own, 2*halfBlocks)))
	}
	return s
}

// chains are a prompt up to the end of one of its halves.
func (s *script) chains(prompt, half int) []block.Chain {
	return s.prompts.chains[prompt][:sharedBlocks+halfBlocks*(half+1)]
}

// stored are the events by which half a prompt enters the cache.
func (s *script) stored(prompt, half int) []kvevent.Event {
	const system, each = sharedBlocks / perEvent, halfBlocks / perEvent
	return s.prompts.events(prompt, s.worker, firstID)[system+half*each:][:each]
}

// removed is the event by which half a prompt leaves it.
func (s *script) removed(prompt, half int) kvevent.Event {
	gone := kvevent.Event{WorkerID: s.worker, Kind: kvevent.Removed, ID: firstID}
	for _, ev := range slices.Backward(s.stored(prompt, half)) {
		gone.Gone = append(gone.Gone, removal(&ev, 0).Gone...)
	}
	return gone
}

// step is what a publisher says at once: half a prompt comes, and half of one that
// is as old as the cache goes.
type step struct {
	prompt, half int
	messages     []message
	events       int
}

// opening fills the cache: system prompts, then the first of its own.
func (s *script) opening(f form) ([]step, error) {
	var steps []step
	add := func(events []kvevent.Event) error {
		st, err := f.step(s.worker, events)
		steps = append(steps, st)
		return err
	}
	for i := range systems {
		if err := add(s.prompts.events(i, s.worker, firstID)[:sharedBlocks/perEvent]); err != nil {
			return nil, err
		}
	}
	for i := range 2 * heldPrompts {
		if err := add(s.stored(i/2, i%2)); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// openingBlocks are stored by an opening.
const openingBlocks = systems*sharedBlocks + heldPrompts*2*halfBlocks

// round is what follows the opening, again and again.
func (s *script) round(f form) ([]step, error) {
	var steps []step
	for i := range 4 * heldPrompts {
		prompt, half := (heldPrompts+i/2)%(2*heldPrompts), i%2
		old := s.removed((prompt+heldPrompts)%(2*heldPrompts), 1-half) // the end goes first
		st, err := f.step(s.worker, append([]kvevent.Event{old}, s.stored(prompt, half)...))
		if err != nil {
			return nil, err
		}
		st.prompt, st.half = prompt, half
		steps = append(steps, st)
	}
	return steps, nil
}

// form is how events go over the wire.
type form struct {
	generation dynamo.Generation
	subject    string
	publisher  uint64 // random from 1.3 on, the worker itself before
}

// newForm returns the form that a worker speaks. An array of events per message,
// or one event each.
func newForm(array bool, s *script) form {
	f := form{generation: dynamo.Gen12, publisher: s.worker}
	if array {
		f.generation, f.publisher = dynamo.Gen14, s.worker^0x5a5a5a
	}
	f.subject = dynamo.EventSubject(f.generation, "dynamo", "backend", "generate")
	return f
}

// step encodes events, in one message or one each.
func (f form) step(worker uint64, events []kvevent.Event) (step, error) {
	size := len(events)
	if f.generation == dynamo.Gen12 {
		size = 1
	}
	st := step{events: len(events)}
	for batch := range slices.Chunk(events, size) {
		env := dynamo.Envelope{PublisherID: f.publisher, Sequence: firstID, PublishedAt: firstID, Topic: dynamo.TopicKVEvents}
		data, err := dynamo.AppendMessage(nil, f.generation, env, batch)
		if err != nil {
			return step{}, fmt.Errorf("events of worker %d: %w", worker, err)
		}
		st.messages = append(st.messages, newMessage(data))
	}
	return st, nil
}

// message is an encoded message whose numbers can be set in place.
type message struct {
	data         []byte
	sequence, at []byte
	ids          [][]byte // of its events
}

func newMessage(data []byte) message {
	m := message{data: data}
	number := func(key string, from int) ([]byte, int) {
		i := bytes.Index(data[from:], []byte(key+"\xcf"))
		if i < 0 {
			return nil, 0
		}
		i += from + len(key) + 1
		return data[i:][:8], i
	}
	m.sequence, _ = number("sequence", 0)
	m.at, _ = number("published_at", 0)
	for id, i := number("event_id", 0); id != nil; id, i = number("event_id", i) {
		m.ids = append(m.ids, id)
	}
	return m
}

// stamp gives a message the next numbers of its publisher.
func (m *message) stamp(sequence, id *uint64, now time.Time) {
	binary.BigEndian.PutUint64(m.sequence, *sequence)
	*sequence++
	binary.BigEndian.PutUint64(m.at, uint64(now.UnixMilli()))
	for _, place := range m.ids {
		binary.BigEndian.PutUint64(place, *id)
		*id++
	}
}
