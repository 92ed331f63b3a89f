package recovery

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// Request is a question about one worker rank.
type Request struct {
	WorkerID uint64
	Rank     uint32

	// From is the id of the first event wanted. Nil asks for all that is held; so
	// does one that the ring has lost already.
	From *uint64
	// To is the id of the last event wanted, nil for no end. Workers take it for a
	// check only and answer to the newest event (dynamo-live.md section 3).
	To *uint64
}

// validate says what a target cannot be asked.
func (r Request) validate(t Target) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if !t.old() {
		return nil
	}
	rank, err := t.oldRank()
	if err == nil && rank != r.Rank {
		err = fmt.Errorf("endpoint %s is not that of rank %d", t.endpoint(), r.Rank)
	}
	return err
}

// appendRequest appends all that is sent for a request: the frame of the request
// plane around a header, which says where to send the answer, and a body, which
// says what to answer (dynamo.md 1.9, steps 2 and 3). The id names the request,
// and the dial-back to address.
func appendRequest(dst []byte, t Target, r Request, address, id string) []byte {
	headers := `{"x-endpoint-path": ` + quote(t.Path) + `, "request-id": ` + quote(id) + `}`
	payload := appendFrame(nil, appendHeader(nil, t, address, id), appendBody(nil, t, r))

	dst = binary.BigEndian.AppendUint16(dst, uint16(len(t.Path)))
	dst = append(dst, t.Path...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(headers)))
	dst = append(dst, headers...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

// appendHeader appends the header of a request's payload. JSON is what a worker
// takes a body for when the header does not say.
func appendHeader(dst []byte, t Target, address, id string) []byte {
	info := `{"address": ` + quote(address) + `, "subject": ` + quote(id) + `, "context": ` + quote(id) +
		`, "stream_type": "response"}`
	dst = append(dst, `{"id": `+quote(id)+`, "request_type": "single_in", "response_type": "many_out", `...)
	if t.Codec == Msgpack {
		dst = append(dst, `"payload_codec": "msgpack", `...)
	}
	return append(dst, `"connection_info": {"transport": "tcp_server", "info": `+quote(info)+`}}`...)
}

// appendBody appends a request in a target's codec and generation.
func appendBody(dst []byte, t Target, r Request) []byte {
	if t.Codec == Msgpack {
		return appendMsgpack(dst, t, r)
	}
	dst = append(dst, `{"worker_id": `...)
	dst = strconv.AppendUint(dst, r.WorkerID, 10)
	if !t.old() {
		dst = append(dst, `, "dp_rank": `...)
		dst = strconv.AppendUint(dst, uint64(r.Rank), 10)
	}
	dst = append(dst, `, "start_event_id": `...)
	dst = appendOptional(dst, r.From)
	dst = append(dst, `, "end_event_id": `...)
	dst = appendOptional(dst, r.To)
	if t.old() {
		// 1.3 wants the rank although its endpoint names it; 1.2 does not look at it.
		dst = append(dst, `, "dp_rank": `...)
		dst = strconv.AppendUint(dst, uint64(r.Rank), 10)
	} else {
		dst = append(dst, `, "supports_tree_dump_failed": true, "kind": "recovery"`...)
	}
	return append(dst, '}')
}

func appendOptional(dst []byte, id *uint64) []byte {
	if id == nil {
		return append(dst, "null"...)
	}
	return strconv.AppendUint(dst, *id, 10)
}

func appendMsgpack(dst []byte, t Target, r Request) []byte {
	fields := uint32(6)
	if t.old() {
		fields = 4
	}
	dst = msgp.AppendMapHeader(dst, fields)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "worker_id"), r.WorkerID)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "dp_rank"), uint64(r.Rank))
	for _, end := range []struct {
		name string
		id   *uint64
	}{{"start_event_id", r.From}, {"end_event_id", r.To}} {
		dst = msgp.AppendString(dst, end.name)
		if end.id == nil {
			dst = msgp.AppendNil(dst)
		} else {
			dst = msgp.AppendUint64(dst, *end.id)
		}
	}
	if !t.old() {
		dst = msgp.AppendBool(msgp.AppendString(dst, "supports_tree_dump_failed"), true)
		dst = msgp.AppendString(msgp.AppendString(dst, "kind"), "recovery")
	}
	return dst
}

// quote returns a string as JSON.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // strings always marshal
	}
	return string(b)
}
