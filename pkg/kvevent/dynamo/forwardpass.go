package dynamo

import (
	"errors"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// ForwardPass is what one rank of an engine says after each step of its
// scheduler, and once a second when idle (topic forward-pass-metrics, dynamo.md
// 1.7). It is the only message that shows the engine's own queue.
//
// Floats are as sent: the engine may send NaN or an infinity.
type ForwardPass struct {
	Version  uint32 // of the format: 1. In encoding 0 stands for 1
	WorkerID uint64 // a decimal string on the wire
	Rank     uint32
	Counter  uint64  // counts the rank's messages
	WallTime float64 // seconds that the step took, 0 when idle

	Scheduled Optional[Requests] // in the step
	Queued    Optional[Requests] // waiting for one
}

// Requests sums up the requests of a step or of the queue. A figure that the
// engine left out is zero.
type Requests struct {
	Prefills        uint64  // requests whose prompt is being computed, or waits for it
	PrefillTokens   uint64  // their prompt tokens to compute
	PrefillVariance float64 // of their prompt lengths, in tokens squared
	PrefillKVTokens uint64  // tokens they have in the KV cache; never stated of the queue
	Decodes         uint64  // requests that generate, or wait for it after a preemption
	DecodeKVTokens  uint64  // tokens they have in the KV cache
	DecodeVariance  float64 // of those, in tokens squared
}

// The fields of forward-pass-metrics, in their positional order.
var (
	passFields = []string{
		"version", "worker_id", "dp_rank", "counter_id", "wall_time", "scheduled_requests", "queued_requests",
	}
	scheduledFields = []string{
		"num_prefill_requests", "sum_prefill_tokens", "var_prefill_length", "sum_prefill_kv_tokens",
		"num_decode_requests", "sum_decode_kv_tokens", "var_decode_kv_tokens",
	}
	queuedFields = []string{
		"num_prefill_requests", "sum_prefill_tokens", "var_prefill_length",
		"num_decode_requests", "sum_decode_kv_tokens", "var_decode_kv_tokens",
	}
)

const (
	passVersion = iota
	passWorker
	passRank
	passCounter
	passWallTime
	passScheduled
	passQueued
)

// The fields of scheduledFields. Those of queuedFields are the same without
// requestsPrefillKV.
const (
	requestsPrefills = iota
	requestsPrefillTokens
	requestsPrefillVariance
	requestsPrefillKV
	requestsDecodes
	requestsDecodeKV
	requestsDecodeVariance
)

// forwardPassVersion is the version of the format that this package knows.
const forwardPassVersion = 1

var (
	errDecimal = errors.New("not a decimal number of 64 bits")
	errNumber  = errors.New("not a number")
)

// readForwardPass reads the payload of a forward-pass-metrics message.
func (d *LoadDecoder) readForwardPass(b []byte, p *ForwardPass) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	hasWorker := false
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, passFields); err != nil {
			return nil, err
		}
		switch f {
		case passVersion:
			p.Version, b, err = msgpack.ReadUint32(b)
		case passWorker:
			p.WorkerID, b, err = readDecimal(b)
			hasWorker = true
		case passRank:
			p.Rank, b, err = readRank(b)
		case passCounter:
			p.Counter, b, err = msgpack.ReadUint(b)
		case passWallTime:
			p.WallTime, b, err = readFloat(b)
		case passScheduled:
			p.Scheduled, b, err = d.readRequests(b, scheduledFields)
		case passQueued:
			p.Queued, b, err = d.readRequests(b, queuedFields)
		default:
			b, err = d.skipUnknown(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(passFields, f, err)
		}
	}
	if !hasWorker {
		return nil, errNoWorker
	}
	return b, nil
}

// readRequests reads the requests of a step or of the queue; nil is not stated.
func (d *LoadDecoder) readRequests(b []byte, names []string) (Optional[Requests], []byte, error) {
	var r Requests
	if msgp.IsNil(b) {
		return Optional[Requests]{}, b[1:], nil
	}
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return Optional[Requests]{}, nil, err
	}
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, names); err != nil {
			return Optional[Requests]{}, nil, err
		}
		which := f
		if f >= requestsPrefillKV && len(names) == len(queuedFields) {
			which++
		}
		switch which {
		case requestsPrefills:
			r.Prefills, b, err = msgpack.ReadUint(b)
		case requestsPrefillTokens:
			r.PrefillTokens, b, err = msgpack.ReadUint(b)
		case requestsPrefillVariance:
			r.PrefillVariance, b, err = readFloat(b)
		case requestsPrefillKV:
			r.PrefillKVTokens, b, err = msgpack.ReadUint(b)
		case requestsDecodes:
			r.Decodes, b, err = msgpack.ReadUint(b)
		case requestsDecodeKV:
			r.DecodeKVTokens, b, err = msgpack.ReadUint(b)
		case requestsDecodeVariance:
			r.DecodeVariance, b, err = readFloat(b)
		default:
			b, err = d.skipUnknown(b)
		}
		if err != nil {
			return Optional[Requests]{}, nil, msgpack.FieldError(names, f, err)
		}
	}
	return some(r), b, nil
}

// readDecimal reads an integer that is written as a decimal string, or as an
// integer after all.
func readDecimal(b []byte) (uint64, []byte, error) {
	if t := msgp.NextType(b); t == msgp.UintType || t == msgp.IntType {
		return msgpack.ReadUint(b)
	}
	word, rest, err := msgpack.ReadWord(b)
	if err != nil {
		return 0, nil, err
	}
	if len(word) > len("18446744073709551615") {
		return 0, nil, errDecimal
	}
	u, err := strconv.ParseUint(string(word), 10, 64)
	if err != nil {
		return 0, nil, errDecimal // ParseUint's error repeats the word
	}
	return u, rest, nil
}

// readFloat reads a number of any kind: a Python engine writes a float that
// happens to be whole as an integer when it was computed as one.
func readFloat(b []byte) (float64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.Float64Type, msgp.Float32Type:
		f, rest, err := msgp.ReadFloat64Bytes(b)
		return f, rest, msgpack.Short(err)
	case msgp.UintType:
		u, rest, err := msgp.ReadUint64Bytes(b)
		return float64(u), rest, msgpack.Short(err)
	case msgp.IntType:
		i, rest, err := msgp.ReadInt64Bytes(b)
		return float64(i), rest, msgpack.Short(err)
	}
	if len(b) == 0 {
		return 0, nil, msgpack.ErrShort
	}
	return 0, nil, errNumber
}

// appendForwardPass appends the payload of a forward-pass-metrics message.
// Requests that are not stated are left out: Dynamo always states both.
func appendForwardPass(b []byte, p *ForwardPass) []byte {
	n := passScheduled
	if p.Scheduled.Set {
		n++
	}
	if p.Queued.Set {
		n++
	}
	version := p.Version
	if version == 0 {
		version = forwardPassVersion
	}
	b = msgp.AppendMapHeader(b, uint32(n))
	b = msgp.AppendString(b, passFields[passVersion])
	b = msgp.AppendUint32(b, version)
	b = msgp.AppendString(b, passFields[passWorker])
	var digits [20]byte
	b = msgp.AppendStringFromBytes(b, strconv.AppendUint(digits[:0], p.WorkerID, 10))
	b = msgp.AppendString(b, passFields[passRank])
	b = msgp.AppendUint32(b, p.Rank)
	b = msgp.AppendString(b, passFields[passCounter])
	b = msgp.AppendUint64(b, p.Counter)
	b = msgp.AppendString(b, passFields[passWallTime])
	b = msgp.AppendFloat64(b, p.WallTime)
	if p.Scheduled.Set {
		b = msgp.AppendString(b, passFields[passScheduled])
		b = appendRequests(b, &p.Scheduled.Value, scheduledFields)
	}
	if p.Queued.Set {
		b = msgp.AppendString(b, passFields[passQueued])
		b = appendRequests(b, &p.Queued.Value, queuedFields)
	}
	return b
}

// appendRequests appends the requests of a step or of the queue, whose fields
// have no PrefillKVTokens.
func appendRequests(b []byte, r *Requests, names []string) []byte {
	b = msgp.AppendMapHeader(b, uint32(len(names)))
	b = msgp.AppendString(b, scheduledFields[requestsPrefills])
	b = msgp.AppendUint64(b, r.Prefills)
	b = msgp.AppendString(b, scheduledFields[requestsPrefillTokens])
	b = msgp.AppendUint64(b, r.PrefillTokens)
	b = msgp.AppendString(b, scheduledFields[requestsPrefillVariance])
	b = msgp.AppendFloat64(b, r.PrefillVariance)
	if len(names) == len(scheduledFields) {
		b = msgp.AppendString(b, scheduledFields[requestsPrefillKV])
		b = msgp.AppendUint64(b, r.PrefillKVTokens)
	}
	b = msgp.AppendString(b, scheduledFields[requestsDecodes])
	b = msgp.AppendUint64(b, r.Decodes)
	b = msgp.AppendString(b, scheduledFields[requestsDecodeKV])
	b = msgp.AppendUint64(b, r.DecodeKVTokens)
	b = msgp.AppendString(b, scheduledFields[requestsDecodeVariance])
	return msgp.AppendFloat64(b, r.DecodeVariance)
}
