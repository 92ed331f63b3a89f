package dynamo

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// ErrLoadTopic is the error of a message that is not about load.
var ErrLoadTopic = errors.New("message is of no load topic (" + TopicKVMetrics + ", " +
	TopicForwardPassMetrics + ", " + TopicActiveSequences + ")")

// Optional is a value that a message may leave open. What is not stated is not
// zero: it says nothing, and an older statement still holds.
type Optional[T any] struct {
	Value T // the zero value when not Set
	Set   bool
}

// some is a value that is stated.
func some[T any](v T) Optional[T] { return Optional[T]{Value: v, Set: true} }

// LoadKind is what a load message is about: its topic.
type LoadKind uint8

// Kinds of load messages. The zero value is none of them.
const (
	LoadMetrics     LoadKind = iota + 1 // kv_metrics: see KVMetrics
	LoadForwardPass                     // forward-pass-metrics: see ForwardPass
	LoadSequence                        // active_sequences_events: see SequenceEvent
)

// loadTopics are the load topics, by their kind.
var loadTopics = [...]string{
	LoadMetrics:     TopicKVMetrics,
	LoadForwardPass: TopicForwardPassMetrics,
	LoadSequence:    TopicActiveSequences,
}

// String returns the topic of the kind.
func (k LoadKind) String() string {
	if k >= LoadMetrics && int(k) < len(loadTopics) {
		return loadTopics[k]
	}
	return "unknown"
}

// kindOfTopic returns the kind of a topic, zero for none.
func kindOfTopic(topic string) LoadKind {
	for k := LoadMetrics; int(k) < len(loadTopics); k++ {
		if loadTopics[k] == topic {
			return k
		}
	}
	return 0
}

// Load is one load message. Of the three parts only that of its kind is filled.
type Load struct {
	Kind     LoadKind
	Metrics  KVMetrics
	Pass     ForwardPass
	Sequence SequenceEvent
}

// LoadStats counts what a LoadDecoder has seen. Messages is the sum of the good
// ones by kind and of BadMessages.
type LoadStats struct {
	Messages      uint64 // calls of Decode
	Metrics       uint64 // good messages of kv_metrics
	Passes        uint64 // good messages of forward-pass-metrics
	Sequences     uint64 // good messages of active_sequences_events
	BadMessages   uint64 // calls that returned an error
	UnknownFields uint64 // fields that this package does not know: skipped
}

// LoadDecoder turns messages of the load topics into values. It reuses its
// buffers: in steady state it allocates nothing. The zero value is ready; it is
// not for concurrent use.
type LoadDecoder struct {
	stats LoadStats
	base  Decoder // reads envelopes, and counts the unknown fields of all
	load  Load
	chain []block.Chain
}

// Stats returns the counts so far.
func (d *LoadDecoder) Stats() LoadStats {
	s := d.stats
	s.UnknownFields = d.base.stats.UnknownFields
	return s
}

// Decode reads one NATS message body of any load topic, in the map form that
// Dynamo writes or in the positional one. The load is valid until the next
// Decode, and as long as msg is not changed: names in it are parts of msg.
//
// Unknown fields are skipped and counted. An error means that nothing of the
// message is used: [ErrLoadTopic], io.ErrUnexpectedEOF (cut short), a missing
// field or one that does not hold what it should, or malformed msgpack. The load
// is nil then, and the envelope what was read of it.
func (d *LoadDecoder) Decode(msg []byte) (Envelope, *Load, error) {
	d.stats.Messages++
	d.load = Load{}
	env, err := d.decode(msg)
	if err != nil {
		d.stats.BadMessages++
		return env, nil, err
	}
	switch d.load.Kind {
	case LoadMetrics:
		d.stats.Metrics++
	case LoadForwardPass:
		d.stats.Passes++
	case LoadSequence:
		d.stats.Sequences++
	}
	return env, &d.load, nil
}

func (d *LoadDecoder) decode(msg []byte) (Envelope, error) {
	var body envelopeBody
	if err := d.base.readEnvelope(msg, &body); err != nil {
		return body.Envelope, fmt.Errorf("envelope: %w", err)
	}
	env, b := body.Envelope, body.payload
	d.load.Kind = kindOfTopic(env.Topic)
	if d.load.Kind == 0 {
		return env, fmt.Errorf("%w but %.64q", ErrLoadTopic, env.Topic)
	}
	if b == nil {
		return env, errors.New("envelope: no payload")
	}
	var err error
	switch d.load.Kind {
	case LoadMetrics:
		b, err = d.readMetrics(b, &d.load.Metrics)
	case LoadForwardPass:
		b, err = d.readForwardPass(b, &d.load.Pass)
	case LoadSequence:
		b, err = d.readSequence(b, &d.load.Sequence)
	}
	if err == nil && len(b) > 0 {
		err = fmt.Errorf("%d bytes follow it", len(b))
	}
	if err != nil {
		return env, fmt.Errorf("%s payload: %w", d.load.Kind, err)
	}
	return env, nil
}

// skipUnknown passes over the value of a field that is not known.
func (d *LoadDecoder) skipUnknown(b []byte) ([]byte, error) {
	d.base.stats.UnknownFields++
	return msgpack.Skip(b)
}

// AppendLoad appends the body of a NATS message with the load to dst, byte for
// byte as Dynamo's releases write it, and returns the extended slice. All
// releases write these topics alike. An empty topic in env stands for the kind's.
//
// It returns dst unchanged and an error when the load does not fit the format:
// an unknown kind, a topic that is not the kind's, names that are not UTF-8, or
// a duration whose nanoseconds make a second or more.
func AppendLoad(dst []byte, env Envelope, l *Load) ([]byte, error) {
	if l.Kind < LoadMetrics || l.Kind > LoadSequence {
		return dst, fmt.Errorf("unknown kind of load %d", l.Kind)
	}
	topic := l.Kind.String()
	if env.Topic != "" && env.Topic != topic {
		return dst, fmt.Errorf("load of topic %s in an envelope of topic %.64q", topic, env.Topic)
	}
	if l.Kind == LoadSequence {
		if err := l.Sequence.check(); err != nil {
			return dst, fmt.Errorf("%s: %w", topic, err)
		}
	}
	b, head := openMessage(dst, env, topic)
	switch l.Kind {
	case LoadMetrics:
		b = appendMetrics(b, &l.Metrics)
	case LoadForwardPass:
		b = appendForwardPass(b, &l.Pass)
	case LoadSequence:
		b = appendSequence(b, &l.Sequence)
	}
	b, err := closeMessage(b, head)
	if err != nil {
		return dst, err
	}
	return b, nil
}

// LoadSubjects returns the subscriptions that together hear the load messages of
// every component and every Dynamo release: for each load topic one per scope
// (dynamo.md 1.2). Namespaces are filtered afterwards, by [InNamespace].
func LoadSubjects() []string {
	return []string{
		"namespace.*." + TopicKVMetrics,
		"namespace.*.component.*.endpoint.*." + TopicKVMetrics,
		"namespace.*.component.*." + TopicForwardPassMetrics,
		"namespace.*.component.*.endpoint.*." + TopicForwardPassMetrics,
		"namespace.*.component.*." + TopicActiveSequences,
		"namespace.*.component.*.endpoint.*." + TopicActiveSequences,
	}
}

// LoadSubject returns the subject that the generation publishes a load topic on.
// Gen12 names neither an endpoint nor, for kv_metrics, a component, and encodes
// nothing.
func LoadSubject(gen Generation, topic, namespace, component, endpoint string) string {
	s := Subject{Namespace: namespace, Component: component, Endpoint: endpoint, Topic: topic, Scope: EndpointScope}
	if gen == Gen12 {
		s.Scope, s.Endpoint = ComponentScope, ""
		if topic == TopicKVMetrics {
			s.Scope, s.Component = NamespaceScope, ""
		}
	}
	return s.String()
}

// readOptional reads a readUint that may be nil.
func readOptional(b []byte) (Optional[uint64], []byte, error) {
	if msgp.IsNil(b) {
		return Optional[uint64]{}, b[1:], nil
	}
	u, b, err := msgpack.ReadUint(b)
	return some(u), b, err
}

// readRank reads a data-parallel rank; nil is 0, like a missing one.
func readRank(b []byte) (uint32, []byte, error) {
	if msgp.IsNil(b) {
		return 0, b[1:], nil
	}
	return msgpack.ReadUint32(b)
}

// appendOptional appends an integer, nil when it is not stated.
func appendOptional(b []byte, o Optional[uint64]) []byte {
	if !o.Set {
		return msgp.AppendNil(b)
	}
	return msgp.AppendUint64(b, o.Value)
}
