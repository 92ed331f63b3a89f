package dynamo

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// SequenceKind is what happened to a request.
type SequenceKind uint8

// Kinds of sequence events. The zero value is none of them.
const (
	AddRequest           SequenceKind = iota + 1 // was placed on the worker
	Free                                         // is finished
	MarkPrefillCompleted                         // its prompt is computed
)

// sequenceWords are the words for the kinds on the wire.
var sequenceWords = [...]string{
	AddRequest: "AddRequest", Free: "Free", MarkPrefillCompleted: "MarkPrefillCompleted",
}

// String returns the word for the kind on the wire.
func (k SequenceKind) String() string {
	if k >= AddRequest && int(k) < len(sequenceWords) {
		return sequenceWords[k]
	}
	return "unknown"
}

// SequenceEvent is what a router tells other routers about the work that it
// placed on a worker (topic active_sequences_events, dynamo.md 1.6). From Dynamo
// 1.5 workers tell of MarkPrefillCompleted themselves.
//
// The order is not guaranteed: Free comes before AddRequest at times, and
// MarkPrefillCompleted after Free. In a disaggregated deployment one request is
// placed twice, on a prefill and on a decode worker.
type SequenceEvent struct {
	RequestID []byte // a part of the message that was decoded
	WorkerID  uint64
	Rank      uint32
	Kind      SequenceKind
	Added     Added  // filled for AddRequest only
	RouterID  uint64 // who says so; a worker gives its own id
	LoRA      []byte // the adapter's name, nil when there is none; a part of the message
}

// Added is the work that a request is.
type Added struct {
	// Sequence are the sequence hashes of the prompt's full blocks, in the
	// decoder's buffer; not stated for a prefill worker, and random for a decode
	// worker of a disaggregated deployment.
	Sequence Optional[[]block.Chain]

	// TrackPrefill says whether the prompt counts as work. Where it is missing,
	// it does: load that is taken for granted does less harm than load unseen.
	TrackPrefill bool

	OutputTokens Optional[uint32] // expected
	Hint         Optional[PrefillHint]
}

// PrefillHint is the router's guess at the work that the prompt is.
type PrefillHint struct {
	Tokens   uint64 // of the prompt, without those that the worker has cached
	Duration Optional[PrefillDuration]
}

// PrefillDuration is a duration as Dynamo writes it: it may exceed a
// [time.Duration].
type PrefillDuration struct {
	Seconds uint64
	Nanos   uint32 // less than a second
}

// The fields of active_sequences_events, in their positional order.
var (
	sequenceFields = []string{"request_id", "worker", "data", "router_id", "lora_name"}
	rankFields     = []string{"worker_id", "dp_rank"}
	addedFields    = []string{
		"token_sequence", "track_prefill_tokens", "expected_output_tokens", "prefill_load_hint",
	}
	hintFields     = []string{"initial_effective_prefill_tokens", "expected_prefill_duration"}
	durationFields = []string{"secs", "nanos"}
)

const (
	sequenceRequest = iota
	sequenceWorker
	sequenceData
	sequenceRouter
	sequenceLoRA
)

const (
	rankWorker = iota
	rankRank
)

const (
	addedSequence = iota
	addedTrack
	addedOutput
	addedHint
)

const (
	hintTokens = iota
	hintDuration
)

const (
	durationSeconds = iota
	durationNanos
)

const nanosPerSecond = 1_000_000_000

var (
	errBool       = errors.New("not a boolean")
	errNoRequest  = errors.New("no request_id")
	errNoPlace    = errors.New("no worker")
	errNoRouter   = errors.New("no router_id")
	errNoTokens   = errors.New("no initial_effective_prefill_tokens")
	errNoDuration = errors.New("no secs or nanos")
	errNanos      = errors.New("makes a second or more")
	errUTF8       = errors.New("not UTF-8")
)

// readSequence reads the payload of an active_sequences_events message.
func (d *LoadDecoder) readSequence(b []byte, e *SequenceEvent) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	var has [5]bool
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, sequenceFields); err != nil {
			return nil, err
		}
		if f >= 0 {
			has[f] = true
		}
		switch f {
		case sequenceRequest:
			e.RequestID, b, err = msgpack.ReadWord(b)
		case sequenceWorker:
			b, err = d.readPlace(b, e)
		case sequenceData:
			b, err = d.readSequenceData(b, e)
		case sequenceRouter:
			e.RouterID, b, err = msgpack.ReadUint(b)
		case sequenceLoRA:
			e.LoRA = nil
			if msgp.IsNil(b) {
				b = b[1:]
			} else {
				e.LoRA, b, err = msgpack.ReadWord(b)
			}
		default:
			b, err = d.skipUnknown(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(sequenceFields, f, err)
		}
	}
	switch {
	case !has[sequenceRequest]:
		return nil, errNoRequest
	case !has[sequenceWorker]:
		return nil, errNoPlace
	case !has[sequenceData]:
		return nil, errNoData
	case !has[sequenceRouter]:
		return nil, errNoRouter
	}
	return b, nil
}

// readPlace reads the worker and the rank that an event is about.
func (d *LoadDecoder) readPlace(b []byte, e *SequenceEvent) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	hasWorker := false
	e.Rank = 0
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, rankFields); err != nil {
			return nil, err
		}
		switch f {
		case rankWorker:
			e.WorkerID, b, err = msgpack.ReadUint(b)
			hasWorker = true
		case rankRank:
			e.Rank, b, err = readRank(b)
		default:
			b, err = d.skipUnknown(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(rankFields, f, err)
		}
	}
	if !hasWorker {
		return nil, errNoWorker
	}
	return b, nil
}

// readSequenceData reads what happened: a bare word, or a map of one word.
func (d *LoadDecoder) readSequenceData(b []byte, e *SequenceEvent) ([]byte, error) {
	e.Added = Added{}
	keyed := msgp.NextType(b) == msgp.MapType
	if keyed {
		n, rest, err := msgp.ReadMapHeaderBytes(b)
		if err != nil {
			return nil, msgpack.Short(err)
		}
		if n != 1 {
			return nil, errData
		}
		b = rest
	} else if len(b) > 0 && msgp.NextType(b) != msgp.StrType {
		return nil, errData
	}
	word, b, err := msgpack.ReadWord(b)
	if err != nil {
		return nil, err
	}
	for k := AddRequest; int(k) < len(sequenceWords); k++ {
		if string(word) != sequenceWords[k] {
			continue
		}
		e.Kind = k
		switch {
		case k == AddRequest && keyed:
			return d.readAdded(b, &e.Added)
		case k == AddRequest:
			return nil, errors.New("AddRequest: says nothing of the request")
		case !keyed:
			return b, nil
		case !msgp.IsNil(b):
			return nil, fmt.Errorf("%s: not nil", k)
		}
		return b[1:], nil
	}
	return nil, fmt.Errorf("unknown change %.64q", word)
}

// readAdded reads the work that a request is.
func (d *LoadDecoder) readAdded(b []byte, a *Added) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	a.TrackPrefill = true
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, addedFields); err != nil {
			return nil, err
		}
		switch f {
		case addedSequence:
			a.Sequence, b, err = d.readChain(b)
		case addedTrack:
			a.TrackPrefill, b, err = readBool(b)
		case addedOutput:
			a.OutputTokens = Optional[uint32]{}
			if msgp.IsNil(b) {
				b = b[1:]
			} else {
				a.OutputTokens.Set = true
				a.OutputTokens.Value, b, err = msgpack.ReadUint32(b)
			}
		case addedHint:
			a.Hint, b, err = d.readHint(b)
		default:
			b, err = d.skipUnknown(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(addedFields, f, err)
		}
	}
	return b, nil
}

// readChain reads the sequence hashes of a request; nil is not stated.
func (d *LoadDecoder) readChain(b []byte) (Optional[[]block.Chain], []byte, error) {
	if msgp.IsNil(b) {
		return Optional[[]block.Chain]{}, b[1:], nil
	}
	n, b, err := msgpack.ReadArray(b)
	if err != nil {
		return Optional[[]block.Chain]{}, nil, err
	}
	d.chain = d.chain[:0]
	for range n {
		var h uint64
		if h, b, err = msgpack.ReadHash(b); err != nil {
			return Optional[[]block.Chain]{}, nil, err
		}
		d.chain = append(d.chain, block.Chain(h))
	}
	if n == 0 {
		return some[[]block.Chain](nil), b, nil
	}
	return some(d.chain), b, nil
}

// readHint reads the router's guess; nil is not stated.
func (d *LoadDecoder) readHint(b []byte) (Optional[PrefillHint], []byte, error) {
	var h Optional[PrefillHint]
	if msgp.IsNil(b) {
		return h, b[1:], nil
	}
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return h, nil, err
	}
	h.Set = true
	hasTokens := false
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, hintFields); err != nil {
			return h, nil, err
		}
		switch f {
		case hintTokens:
			h.Value.Tokens, b, err = msgpack.ReadUint(b)
			hasTokens = true
		case hintDuration:
			h.Value.Duration, b, err = d.readDuration(b)
		default:
			b, err = d.skipUnknown(b)
		}
		if err != nil {
			return h, nil, msgpack.FieldError(hintFields, f, err)
		}
	}
	if !hasTokens {
		return h, nil, errNoTokens
	}
	return h, b, nil
}

// readDuration reads a duration; nil is not stated.
func (d *LoadDecoder) readDuration(b []byte) (Optional[PrefillDuration], []byte, error) {
	var p Optional[PrefillDuration]
	if msgp.IsNil(b) {
		return p, b[1:], nil
	}
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return p, nil, err
	}
	p.Set = true
	var has [2]bool
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, durationFields); err != nil {
			return p, nil, err
		}
		if f >= 0 {
			has[f] = true
		}
		switch f {
		case durationSeconds:
			p.Value.Seconds, b, err = msgpack.ReadUint(b)
		case durationNanos:
			p.Value.Nanos, b, err = msgpack.ReadUint32(b)
			if err == nil && p.Value.Nanos >= nanosPerSecond {
				err = errNanos
			}
		default:
			b, err = d.skipUnknown(b)
		}
		if err != nil {
			return p, nil, msgpack.FieldError(durationFields, f, err)
		}
	}
	if !has[durationSeconds] || !has[durationNanos] {
		return p, nil, errNoDuration
	}
	return p, b, nil
}

// readBool reads a boolean.
func readBool(b []byte) (value bool, rest []byte, err error) {
	if len(b) == 0 {
		return false, nil, msgpack.ErrShort
	}
	if msgp.NextType(b) != msgp.BoolType {
		return false, nil, errBool
	}
	return msgp.ReadBoolBytes(b)
}

// check reports why the event cannot be written, nil when it can.
func (e *SequenceEvent) check() error {
	switch {
	case e.Kind < AddRequest || e.Kind > MarkPrefillCompleted:
		return fmt.Errorf("unknown kind %d", e.Kind)
	case !utf8.Valid(e.RequestID):
		return msgpack.FieldError(sequenceFields, sequenceRequest, errUTF8)
	case !utf8.Valid(e.LoRA):
		return msgpack.FieldError(sequenceFields, sequenceLoRA, errUTF8)
	case e.Kind == AddRequest && e.Added.Hint.Value.Duration.Value.Nanos >= nanosPerSecond:
		return msgpack.FieldError(durationFields, durationNanos, errNanos)
	}
	return nil
}

// appendSequence appends the payload of an active_sequences_events message.
func appendSequence(b []byte, e *SequenceEvent) []byte {
	b = msgp.AppendMapHeader(b, uint32(len(sequenceFields)))
	b = msgp.AppendString(b, sequenceFields[sequenceRequest])
	b = msgp.AppendStringFromBytes(b, e.RequestID)
	b = msgp.AppendString(b, sequenceFields[sequenceWorker])
	b = msgp.AppendMapHeader(b, uint32(len(rankFields)))
	b = msgp.AppendString(b, rankFields[rankWorker])
	b = msgp.AppendUint64(b, e.WorkerID)
	b = msgp.AppendString(b, rankFields[rankRank])
	b = msgp.AppendUint32(b, e.Rank)
	b = msgp.AppendString(b, sequenceFields[sequenceData])
	if e.Kind == AddRequest {
		b = msgp.AppendMapHeader(b, 1)
		b = msgp.AppendString(b, e.Kind.String())
		b = appendAdded(b, &e.Added)
	} else {
		b = msgp.AppendString(b, e.Kind.String())
	}
	b = msgp.AppendString(b, sequenceFields[sequenceRouter])
	b = msgp.AppendUint64(b, e.RouterID)
	b = msgp.AppendString(b, sequenceFields[sequenceLoRA])
	if e.LoRA == nil {
		return msgp.AppendNil(b)
	}
	return msgp.AppendStringFromBytes(b, e.LoRA)
}

// appendAdded appends the work that a request is.
func appendAdded(b []byte, a *Added) []byte {
	b = msgp.AppendMapHeader(b, uint32(len(addedFields)))
	b = msgp.AppendString(b, addedFields[addedSequence])
	if a.Sequence.Set {
		b = msgp.AppendArrayHeader(b, uint32(len(a.Sequence.Value)))
		for _, h := range a.Sequence.Value {
			b = msgp.AppendUint64(b, uint64(h))
		}
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendString(b, addedFields[addedTrack])
	b = msgp.AppendBool(b, a.TrackPrefill)
	b = msgp.AppendString(b, addedFields[addedOutput])
	if a.OutputTokens.Set {
		b = msgp.AppendUint32(b, a.OutputTokens.Value)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendString(b, addedFields[addedHint])
	if !a.Hint.Set {
		return msgp.AppendNil(b)
	}
	h := &a.Hint.Value
	b = msgp.AppendMapHeader(b, uint32(len(hintFields)))
	b = msgp.AppendString(b, hintFields[hintTokens])
	b = msgp.AppendUint64(b, h.Tokens)
	b = msgp.AppendString(b, hintFields[hintDuration])
	if !h.Duration.Set {
		return msgp.AppendNil(b)
	}
	b = msgp.AppendMapHeader(b, uint32(len(durationFields)))
	b = msgp.AppendString(b, durationFields[durationSeconds])
	b = msgp.AppendUint64(b, h.Duration.Value.Seconds)
	b = msgp.AppendString(b, durationFields[durationNanos])
	return msgp.AppendUint32(b, h.Duration.Value.Nanos)
}
