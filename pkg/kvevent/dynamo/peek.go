package dynamo

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// PeekWorker returns the worker id of the first event of a kv-events message,
// without decoding the message: what a reader needs to know which goroutine the
// message belongs to. It allocates nothing.
//
// It reads every form that [Decoder.Decode] reads, but for a payload written as
// an array of small integers and JSON keys with escapes, which no release writes.
// It judges nothing: ok says that an id is where one belongs, and not that the
// message is good. If Decode skips the first event as bad, the id is still that
// event's. Where ok is false Decode may find events all the same, so such
// messages belong together, on a goroutine of the caller's choice.
func PeekWorker(msg []byte) (worker uint64, ok bool) {
	if len(msg) > 0 && msg[0] == '{' {
		return peekJSON(msg)
	}
	payload := peekCanonical(msg)
	if payload == nil {
		if payload, ok = peekPayload(msg); !ok {
			return 0, false
		}
	}
	return peekEvents(payload)
}

// The bytes between the numbers of a message as every release writes it, in
// pieces that compare fast.
const (
	peekPublisher   = "\x85\xacpublisher_id"
	peekSequence    = "\xa8sequence"
	peekPublishedAt = "\xacpublished_at"
	peekTopic       = "\xa5topic\xa9kv-eve"
	peekPayloadKey  = "nts\xa7payload"
	peekWorkerID    = "\xa9worker_id"
)

// peekCanonical returns the payload, and all that follows it, of a message with
// the canonical msgpack.Layout; nil of any other.
func peekCanonical(b []byte) []byte {
	if len(b) < len(peekPublisher) || string(b[:len(peekPublisher)]) != peekPublisher {
		return nil
	}
	b = peekPast(b, len(peekPublisher))
	if len(b) < len(peekSequence) || string(b[:len(peekSequence)]) != peekSequence {
		return nil
	}
	b = peekPast(b, len(peekSequence))
	if len(b) < len(peekPublishedAt) || string(b[:len(peekPublishedAt)]) != peekPublishedAt {
		return nil
	}
	b = peekPast(b, len(peekPublishedAt))
	const lead = len(peekTopic) + len(peekPayloadKey)
	if len(b) < lead+5 || string(b[:len(peekTopic)]) != peekTopic ||
		string(b[len(peekTopic):lead]) != peekPayloadKey || b[lead] < 0xc4 || b[lead] > 0xc6 {
		return nil
	}
	return b[lead+1+1<<(b[lead]-0xc4):] // after the head of the bin
}

// peekPast returns what follows the integer that starts at b[at], nil when there
// is none without a sign.
func peekPast(b []byte, at int) []byte {
	if at >= len(b) {
		return nil
	}
	n := at + 1
	if tag := b[at]; tag-0xcc < 4 {
		n += 1 << (tag - 0xcc)
	} else if tag >= 0x80 {
		return nil
	}
	if n > len(b) {
		return nil
	}
	return b[n:]
}

// peekPayload returns the payload of an envelope in any order or positional. Of
// one that is cut short it returns what is there.
func peekPayload(b []byte) (payload []byte, ok bool) {
	l, b, err := msgpack.ReadLayout(b)
	for i := 0; err == nil && i < l.N; i++ {
		var f int
		if f, b, err = l.Field(b, i, envelopeFields); err != nil {
			break
		}
		if f != envPayload {
			b, err = msgpack.Skip(b)
			continue
		}
		n, rest, err := msgp.ReadBytesHeader(b)
		if err != nil {
			return nil, false
		}
		return rest[:min(uint64(n), uint64(len(rest)))], true
	}
	return nil, false
}

// peekEvents returns the worker id of the first event of a payload.
func peekEvents(b []byte) (worker uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	switch tag := b[0]; {
	case tag&0xf0 == 0x90 && tag != 0x90:
		b = b[1:]
	case tag == 0xdc || tag == 0xdd:
		n, rest, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n == 0 {
			return 0, false
		}
		b = rest
	}
	// Here is an event, or, in the old positional form, already its worker id.
	if len(b) > len(peekWorkerID)+9 && b[0]&0xf0 == 0x80 && b[0] != 0x80 &&
		string(b[1:1+len(peekWorkerID)]) == peekWorkerID && b[1+len(peekWorkerID)] == 0xcf {
		return binary.BigEndian.Uint64(b[2+len(peekWorkerID):]), true
	}
	if len(b) > 0 && (b[0] < 0x80 || b[0] >= 0xcc && b[0] <= 0xd3) {
		worker, _, err := msgpack.ReadUint(b)
		return worker, err == nil
	}
	return peekEvent(b)
}

// peekEvent returns the worker id of an event in any order or positional.
func peekEvent(b []byte) (worker uint64, ok bool) {
	l, b, err := msgpack.ReadLayout(b)
	for i := 0; err == nil && i < l.N; i++ {
		var f int
		if f, b, err = l.Field(b, i, routerEventFields); err != nil {
			break
		}
		if f == routerWorker {
			worker, _, err = msgpack.ReadUint(b)
			return worker, err == nil
		}
		b, err = msgpack.Skip(b)
	}
	return 0, false
}

// peekJSONID is how every release starts a bare JSON event.
const peekJSONID = `{"worker_id":`

// peekJSON returns the worker id of a bare JSON event (dynamo.md 1.8).
func peekJSON(b []byte) (worker uint64, ok bool) {
	if len(b) > len(peekJSONID) && string(b[:len(peekJSONID)]) == peekJSONID {
		return peekNumber(b[len(peekJSONID):])
	}
	for b = jsonSpace(b[1:]); len(b) > 0 && b[0] == '"'; b = jsonSpace(b[1:]) {
		n := jsonStringSize(b)
		if n == 0 {
			return 0, false
		}
		key := b[1 : n-1]
		b = jsonSpace(b[n:])
		if len(b) == 0 || b[0] != ':' {
			return 0, false
		}
		if b = jsonSpace(b[1:]); string(key) == routerEventFields[routerWorker] {
			return peekNumber(b)
		}
		if b = jsonSpace(jsonSkip(b)); len(b) == 0 || b[0] != ',' {
			return 0, false
		}
	}
	return 0, false
}

// peekNumber returns the whole number that b starts with.
func peekNumber(b []byte) (u uint64, ok bool) {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	if n == 0 || n == len(b) || b[n] == '.' || b[n]|0x20 == 'e' {
		return 0, false
	}
	return parseUint(b[:n])
}

// jsonStringSize returns the bytes of the string that b starts with, 0 when it
// does not end.
func jsonStringSize(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return 0
}

// jsonSkip passes the value that b starts with, without a look at what is legal
// inside. What does not end passes whole.
func jsonSkip(b []byte) []byte {
	for i, depth := 0, 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := jsonStringSize(b[i:])
			if n == 0 {
				return nil
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return b[i:]
			}
		case ',':
			if depth == 0 {
				return b[i:]
			}
		}
	}
	return nil
}
