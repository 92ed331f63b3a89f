package dynamo

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// ErrTopic is the error of a message that is not about KV events.
var ErrTopic = errors.New("message is not of topic " + TopicKVEvents)

// Envelope is what every message of the event plane says about itself
// (dynamo.md 1.3). PublisherID and Sequence together are not unique in Dynamo
// 1.2: detect loss by the event ids. What a message leaves out is zero. A bare
// JSON event has no envelope: its worker stands for the publisher.
type Envelope struct {
	PublisherID uint64
	Sequence    uint64 // counts a publisher's messages from 0
	PublishedAt uint64 // Unix time in milliseconds
	Topic       string
}

// DecodeStats counts what a Decoder has seen.
type DecodeStats struct {
	Messages      uint64 // calls of Decode
	Events        uint64 // events given to apply, those of unknown tiers too
	BadMessages   uint64 // calls that returned an error; events before it still count as Events
	BadEvents     uint64 // well-formed values in an event's place that are no event: skipped
	UnknownFields uint64 // fields that this package does not know: skipped
	UnknownTiers  uint64 // events about a storage tier it does not know: of kvevent.NumTiers
	EmptyStores   uint64 // stored events without blocks: the engine's block size is not the registered one
}

// Decoder turns messages into events. It reuses its buffers: in steady state it
// allocates nothing. The zero value is ready; it is not for concurrent use.
type Decoder struct {
	stats    DecodeStats
	lastSkip error
	lastTier string
	envelope Envelope // of the message being decoded

	event kvevent.Event

	blocks  []kvevent.Block
	gone    []kvevent.EngineHash
	media   []kvevent.Media
	offsets [][2]uint32
	payload []byte
	words   map[string]string
}

// Stats returns the counts so far.
func (d *Decoder) Stats() DecodeStats { return d.stats }

// LastSkip returns why the latest skipped event was skipped, nil if none was.
func (d *Decoder) LastSkip() error { return d.lastSkip }

// LastTier returns the name of the latest storage tier that is not known, empty
// if there was none.
func (d *Decoder) LastTier() string { return d.lastTier }

// Envelope returns the envelope of the message that is being decoded. It is
// meant for apply; outside of Decode it is that of the latest message with a
// payload.
func (d *Decoder) Envelope() Envelope { return d.envelope }

// Decode reads one NATS message body and calls apply for each event, in order.
// The event and its slices are valid only during that call of apply.
//
// Scope is that of the message's subject. It decides only what a Cleared event
// drops: the whole worker in component and stream scope, one rank otherwise. The
// payload's form (dynamo.md 1.4) is recognised by itself, and so is a bare JSON
// event without an envelope (dynamo.md 1.8).
//
// Unknown fields and values that are no event are skipped and counted; the
// others still reach apply. An event of an unknown storage tier, which takes up
// an event id like any other, comes with tier kvevent.NumTiers. An error means that
// the rest of the message was lost: [ErrTopic], io.ErrUnexpectedEOF (cut short),
// or malformed msgpack or JSON. Events before that point were applied.
func (d *Decoder) Decode(msg []byte, scope Scope, apply func(*kvevent.Event)) (Envelope, error) {
	d.stats.Messages++
	env, err := d.decode(msg, scope, apply)
	if err != nil {
		d.stats.BadMessages++
	}
	return env, err
}

func (d *Decoder) decode(msg []byte, scope Scope, apply func(*kvevent.Event)) (Envelope, error) {
	if len(msg) > 0 && msg[0] == '{' {
		env, err := d.decodeJSON(msg, scope, apply)
		if err != nil {
			err = fmt.Errorf("bare event: %w", err)
		}
		return env, err
	}
	var body envelopeBody
	err := d.readEnvelope(msg, &body)
	env := body.Envelope
	if err != nil {
		err = fmt.Errorf("envelope: %w", err)
		if env.Topic != TopicKVEvents || body.payload == nil {
			return env, err
		}
		// What arrived before the damage is still good.
	}
	if env.Topic != TopicKVEvents {
		return env, fmt.Errorf("%w but %.64q", ErrTopic, env.Topic)
	}
	if body.payload == nil {
		return env, errors.New("envelope: no payload")
	}
	d.envelope = env
	if payloadErr := d.readPayload(body.payload, scope, apply); err == nil && payloadErr != nil {
		err = fmt.Errorf("payload: %w", payloadErr)
	}
	return env, err
}

// envelopeFields are the keys of an envelope, in their positional order.
var envelopeFields = []string{"publisher_id", "sequence", "published_at", "topic", "payload"}

const (
	envPublisher = iota
	envSequence
	envPublishedAt
	envTopic
	envPayload
)

// envelopeBody is an envelope with its payload; nil when none was seen.
type envelopeBody struct {
	Envelope
	payload []byte
}

// readEnvelope reads a whole message into e. On an error e holds what came
// before it; of a payload that is cut short, the part that is there.
func (d *Decoder) readEnvelope(b []byte, e *envelopeBody) error {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return err
	}
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, envelopeFields); err != nil {
			return err
		}
		switch f {
		case envPublisher:
			e.PublisherID, b, err = msgpack.ReadUint(b)
		case envSequence:
			e.Sequence, b, err = msgpack.ReadUint(b)
		case envPublishedAt:
			e.PublishedAt, b, err = msgpack.ReadUint(b)
		case envTopic:
			var word []byte
			if word, b, err = msgpack.ReadWord(b); err == nil {
				e.Topic = d.intern(word)
			}
		case envPayload:
			if e.payload != nil {
				return msgpack.FieldError(envelopeFields, f, errTwice)
			}
			e.payload, b, err = d.readPayloadBytes(b)
		default:
			d.stats.UnknownFields++
			b, err = msgpack.Skip(b)
		}
		if err != nil {
			return msgpack.FieldError(envelopeFields, f, err)
		}
	}
	if len(b) > 0 {
		return fmt.Errorf("%d bytes follow it", len(b))
	}
	return nil
}

// readPayloadBytes reads the payload's own encoding: bin, or an array of small
// integers, which a serialiser without byte strings would write. When it is cut
// short, the part that is there is returned beside the error.
func (d *Decoder) readPayloadBytes(b []byte) (payload, rest []byte, err error) {
	switch msgp.NextType(b) {
	case msgp.BinType:
		n, b, err := msgp.ReadBytesHeader(b)
		if err != nil {
			return nil, nil, msgpack.Short(err)
		}
		if uint64(n) > uint64(len(b)) {
			return b, nil, msgpack.ErrShort
		}
		return b[:n:n], b[n:], nil
	case msgp.ArrayType:
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return nil, nil, msgpack.Short(err)
		}
		d.payload = d.payload[:0]
		for range n {
			var u uint64
			if u, b, err = msgpack.ReadUint(b); err != nil {
				return d.payload, nil, err
			}
			if u > 255 {
				return d.payload, nil, errors.New("array holds more than bytes")
			}
			d.payload = append(d.payload, byte(u))
		}
		return d.payload, b, nil
	}
	if len(b) == 0 {
		return nil, nil, msgpack.ErrShort
	}
	return nil, nil, errors.New("neither bytes nor an array")
}

// maxWords bounds the words a Decoder remembers, lest a broken publisher grow it.
const maxWords = 64

// intern returns the string of a word that repeats from message to message.
func (d *Decoder) intern(word []byte) string {
	switch string(word) {
	case TopicKVEvents:
		return TopicKVEvents
	case TopicKVMetrics:
		return TopicKVMetrics
	case TopicForwardPassMetrics:
		return TopicForwardPassMetrics
	case TopicActiveSequences:
		return TopicActiveSequences
	case residencyWorker:
		return residencyWorker
	}
	if s, ok := d.words[string(word)]; ok {
		return s
	}
	s := string(word)
	if len(d.words) < maxWords && len(s) <= maxWords {
		if d.words == nil {
			d.words = make(map[string]string)
		}
		d.words[s] = s
	}
	return s
}
