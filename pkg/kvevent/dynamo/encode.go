package dynamo

import (
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// Generation is a form of the event plane, named by the first Dynamo release
// that writes it (dynamo-live.md section 1).
type Generation uint8

// Generations of the event plane.
const (
	Gen12 Generation = iota + 1 // 1.2, 1.3: component scope, one event per message
	Gen14                       // 1.4: endpoint scope, an array of events per message
	Gen15                       // 1.5+: like Gen14, with a residency domain
)

// EventSubject returns the subject that a worker of the generation publishes its
// KV events on. Gen12 has no endpoint in it and encodes nothing.
func EventSubject(gen Generation, namespace, component, endpoint string) string {
	s := Subject{Namespace: namespace, Component: component, Topic: TopicKVEvents, Scope: ComponentScope}
	if gen != Gen12 {
		s.Endpoint, s.Scope = endpoint, EndpointScope
	}
	return s.String()
}

// AppendMessage appends the body of a NATS message with the events to dst, byte
// for byte as Dynamo's releases of that generation write it, and returns the
// extended slice. An empty topic in env stands for kv-events.
//
// What a generation cannot say is left out: the residency domain before Gen15
// (where none is given Gen15 says "worker"). AllRanks is never in the message:
// it follows from the subject.
//
// It returns dst unchanged and an error when the events do not fit the format:
// not exactly one in Gen12, an unknown kind or tier, or media that are of no
// block or not in the order of their blocks.
func AppendMessage(dst []byte, gen Generation, env Envelope, events []kvevent.Event) ([]byte, error) {
	if err := checkMessage(gen, env, events); err != nil {
		return dst, err
	}
	b, head := openMessage(dst, env, TopicKVEvents)
	if gen != Gen12 {
		b = msgp.AppendArrayHeader(b, uint32(len(events)))
	}
	for i := range events {
		b = appendRouterEvent(b, gen, &events[i])
	}
	b, err := closeMessage(b, head)
	if err != nil {
		return dst, err
	}
	return b, nil
}

// payloadHead is the size of the largest head that a payload can have.
const payloadHead = 5

// openMessage appends an envelope up to its payload, which the caller appends,
// and returns where the payload's head belongs, for closeMessage.
func openMessage(b []byte, env Envelope, topic string) ([]byte, int) {
	b = msgp.AppendMapHeader(b, uint32(len(envelopeFields)))
	b = msgp.AppendString(b, envelopeFields[envPublisher])
	b = msgp.AppendUint64(b, env.PublisherID)
	b = msgp.AppendString(b, envelopeFields[envSequence])
	b = msgp.AppendUint64(b, env.Sequence)
	b = msgp.AppendString(b, envelopeFields[envPublishedAt])
	b = msgp.AppendUint64(b, env.PublishedAt)
	b = msgp.AppendString(b, envelopeFields[envTopic])
	b = msgp.AppendString(b, topic)
	b = msgp.AppendString(b, envelopeFields[envPayload])
	// The head's size depends on the payload's: leave room for the largest, and
	// closeMessage closes the gap.
	return append(b, make([]byte, payloadHead)...), len(b)
}

// closeMessage completes what openMessage began: all after its head is payload.
func closeMessage(b []byte, head int) ([]byte, error) {
	body := head + payloadHead
	size := len(b) - body
	if uint64(size) > math.MaxUint32 {
		return nil, fmt.Errorf("payload of %d bytes is too large for a message", size)
	}
	start := len(msgp.AppendBytesHeader(b[:head], uint32(size)))
	copy(b[start:], b[body:])
	return b[:start+size], nil
}

// checkMessage reports why events cannot be written, nil when they can.
func checkMessage(gen Generation, env Envelope, events []kvevent.Event) error {
	if gen < Gen12 || gen > Gen15 {
		return fmt.Errorf("unknown generation %d", gen)
	}
	if env.Topic != "" && env.Topic != TopicKVEvents {
		return fmt.Errorf("%w but %.64q", ErrTopic, env.Topic)
	}
	if gen == Gen12 && len(events) != 1 {
		return fmt.Errorf("%d events: Dynamo 1.2 and 1.3 write exactly one per message", len(events))
	}
	for i := range events {
		e := &events[i]
		if e.Kind < kvevent.Stored || e.Kind > kvevent.Cleared {
			return fmt.Errorf("event %d: unknown kind %d", i, e.Kind)
		}
		if e.Tier >= kvevent.NumTiers {
			return fmt.Errorf("event %d: unknown tier %d", i, e.Tier)
		}
		last := 0
		for _, m := range e.Media {
			if m.Block < last || m.Block >= len(e.Blocks) {
				return fmt.Errorf("event %d: media of block %d after %d, of %d blocks", i, m.Block, last, len(e.Blocks))
			}
			last = m.Block
		}
	}
	return nil
}

// appendRouterEvent appends one event with its worker and tier.
func appendRouterEvent(b []byte, gen Generation, e *kvevent.Event) []byte {
	fields := uint32(3)
	if gen >= Gen15 {
		fields = 4
	}
	b = msgp.AppendMapHeader(b, fields)
	b = msgp.AppendString(b, routerEventFields[routerWorker])
	b = msgp.AppendUint64(b, e.WorkerID)
	b = msgp.AppendString(b, routerEventFields[routerTier])
	b = msgp.AppendString(b, e.Tier.String())
	if gen >= Gen15 {
		residency := e.Residency
		if residency == "" {
			residency = residencyWorker
		}
		b = msgp.AppendString(b, routerEventFields[routerResidency])
		b = msgp.AppendString(b, residency)
	}
	b = msgp.AppendString(b, routerEventFields[routerEvent])

	b = msgp.AppendMapHeader(b, uint32(len(cacheEventFields)))
	b = msgp.AppendString(b, cacheEventFields[cacheID])
	b = msgp.AppendUint64(b, e.ID)
	b = msgp.AppendString(b, cacheEventFields[cacheData])
	if e.Kind != kvevent.Cleared {
		b = msgp.AppendMapHeader(b, 1)
	}
	b = msgp.AppendString(b, e.Kind.String())
	switch e.Kind {
	case kvevent.Stored:
		b = appendStored(b, e)
	case kvevent.Removed:
		b = msgp.AppendMapHeader(b, 1)
		b = msgp.AppendString(b, removedFields[0])
		b = msgp.AppendArrayHeader(b, uint32(len(e.Gone)))
		for _, h := range e.Gone {
			b = msgp.AppendUint64(b, uint64(h))
		}
	case kvevent.Cleared: // a bare word
	}
	b = msgp.AppendString(b, cacheEventFields[cacheRank])
	return msgp.AppendUint32(b, e.Rank)
}

// appendStored appends the body of a stored change.
func appendStored(b []byte, e *kvevent.Event) []byte {
	b = msgp.AppendMapHeader(b, uint32(len(storedFields)))
	b = msgp.AppendString(b, storedFields[storedParent])
	if e.HasParent {
		b = msgp.AppendUint64(b, uint64(e.Parent))
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendString(b, storedFields[storedStart])
	if e.HasStart {
		b = msgp.AppendUint32(b, e.Start)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendString(b, storedFields[storedBlocks])
	b = msgp.AppendArrayHeader(b, uint32(len(e.Blocks)))
	media := e.Media
	for i, blk := range e.Blocks {
		b = msgp.AppendMapHeader(b, uint32(len(blockFields)))
		b = msgp.AppendString(b, blockFields[blockEngine])
		b = msgp.AppendUint64(b, uint64(blk.Engine))
		b = msgp.AppendString(b, blockFields[blockTokens])
		b = msgp.AppendUint64(b, uint64(blk.Hash))
		b = msgp.AppendString(b, blockFields[blockMedia])
		n := 0
		for n < len(media) && media[n].Block == i {
			n++
		}
		b = appendMedia(b, media[:n])
		media = media[n:]
	}
	return b
}

// appendMedia appends the multimodal objects of one block, nil when it has none.
func appendMedia(b []byte, media []kvevent.Media) []byte {
	if len(media) == 0 {
		return msgp.AppendNil(b)
	}
	b = msgp.AppendMapHeader(b, uint32(len(mediaFields)))
	b = msgp.AppendString(b, mediaFields[0])
	b = msgp.AppendArrayHeader(b, uint32(len(media)))
	for i := range media {
		b = msgp.AppendMapHeader(b, uint32(len(objectFields)))
		b = msgp.AppendString(b, objectFields[objectHash])
		b = msgp.AppendUint64(b, media[i].Hash)
		b = msgp.AppendString(b, objectFields[objectOffsets])
		b = msgp.AppendArrayHeader(b, uint32(len(media[i].Offsets)))
		for _, o := range media[i].Offsets {
			b = msgp.AppendArrayHeader(b, 2)
			b = msgp.AppendUint32(b, o[0])
			b = msgp.AppendUint32(b, o[1])
		}
	}
	return b
}
