package eventplane

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
)

// Replicas tell each other what they have under way on
//
//	<prefix>.load.<router id>
//
// where the router id is that of their active_sequences_events. A message is a
// MessagePack map. "v" comes first, the version of what follows; fields that are
// not known are skipped, as are further items of an array.
//
//	v        replicaVersion
//	kind     replicaAlive, replicaState or replicaGone
//	at       time of the router, in ms: see load.RouterState
//	part     number of this part of a state, from 0
//	parts    how many parts the state has
//	workers  [id, rank] of the workers that requests are on
//	open     [request id, number of the worker in workers, prompt tokens to
//	         compute, KV blocks, whether the prompt is computed] of every request
const replicaVersion = 1

// replicaKind is what a message of a replica is.
type replicaKind uint64

const (
	replicaAlive replicaKind = iota + 1 // a heartbeat
	replicaState                        // a part of its state
	replicaGone                         // its last word
)

// maxReplicaOpen bounds the requests in a message. Ours have far fewer.
const maxReplicaOpen = 1 << 16

var (
	errReplicaVersion = errors.New("of another version of the format")
	errReplicaKind    = errors.New("of no known kind")
	errReplicaWorker  = errors.New("a request is on a worker that the message does not have")
	errReplicaMany    = errors.New("too many requests")
	errReplicaShape   = errors.New("too few items in an array")
)

// replicaMessage is what a replica says.
type replicaMessage struct {
	kind        replicaKind
	at          uint64
	part, parts uint64
	open        []load.OpenRequest
}

// appendReplicaHead begins a message; the fields that follow are counted in more.
func appendReplicaHead(b []byte, kind replicaKind, at uint64, more uint32) []byte {
	b = msgp.AppendMapHeader(b, 3+more)
	b = msgp.AppendUint64(msgp.AppendString(b, "v"), replicaVersion)
	b = msgp.AppendUint64(msgp.AppendString(b, "kind"), uint64(kind))
	return msgp.AppendUint64(msgp.AppendString(b, "at"), at)
}

// statePart is a part of a state that is being written.
type statePart struct {
	workers []fleet.Key
	open    []byte
	n       uint32
}

// add adds a request.
func (s *statePart) add(request string, worker int, tokens, blocks uint64, prefilled bool) {
	b := msgp.AppendArrayHeader(s.open, 5)
	b = msgp.AppendString(b, request)
	b = msgp.AppendInt(b, worker)
	b = msgp.AppendUint64(msgp.AppendUint64(b, tokens), blocks)
	s.open = msgp.AppendBool(b, prefilled)
	s.n++
}

// size is about how long the message will be, never less.
func (s *statePart) size() int { return len(s.open) + 16*len(s.workers) + 128 }

// appendTo appends the message.
func (s *statePart) appendTo(b []byte, at uint64, part, parts int) []byte {
	b = appendReplicaHead(b, replicaState, at, 4)
	b = msgp.AppendInt(msgp.AppendString(b, "part"), part)
	b = msgp.AppendInt(msgp.AppendString(b, "parts"), parts)
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "workers"), uint32(len(s.workers)))
	for _, k := range s.workers {
		b = msgp.AppendArrayHeader(b, 2)
		b = msgp.AppendUint32(msgp.AppendUint64(b, k.ID), k.Rank)
	}
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "open"), s.n)
	return append(b, s.open...)
}

// replicaDecoder reads messages of replicas. What it returns is good until the
// next call, and as long as the bytes are.
type replicaDecoder struct {
	unknownFields uint64

	m       replicaMessage
	workers []fleet.Key
	on      []uint64 // workers of the requests
}

func (d *replicaDecoder) decode(b []byte) (*replicaMessage, error) {
	d.m = replicaMessage{open: d.m.open[:0]}
	d.workers, d.on = d.workers[:0], d.on[:0]
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	for i := range n {
		var key []byte
		if key, b, err = msgp.ReadMapKeyZC(b); err != nil {
			return nil, err
		}
		if i == 0 && string(key) != "v" {
			return nil, errReplicaVersion
		}
		if b, err = d.field(key, b); err != nil {
			return nil, fmt.Errorf("%q: %w", clip(key), err)
		}
	}
	if d.m.kind < replicaAlive || d.m.kind > replicaGone {
		return nil, errReplicaKind
	}
	return &d.m, d.resolve()
}

// clip bounds what is repeated of a foreign word.
func clip(key []byte) []byte { return key[:min(len(key), 32)] }

// field reads the value of a field.
func (d *replicaDecoder) field(key, b []byte) (rest []byte, err error) {
	var u uint64
	switch string(key) {
	case "v":
		if u, rest, err = msgp.ReadUint64Bytes(b); err == nil && u != replicaVersion {
			err = errReplicaVersion
		}
	case "kind":
		u, rest, err = msgp.ReadUint64Bytes(b)
		d.m.kind = replicaKind(u)
	case "at":
		d.m.at, rest, err = msgp.ReadUint64Bytes(b)
	case "part":
		d.m.part, rest, err = msgp.ReadUint64Bytes(b)
	case "parts":
		d.m.parts, rest, err = msgp.ReadUint64Bytes(b)
	case "workers":
		rest, err = each(b, d.worker)
	case "open":
		rest, err = each(b, d.request)
	default:
		d.unknownFields++
		rest, err = msgp.Skip(b)
	}
	return rest, err
}

// each reads an array, of which every item takes a byte at least.
func each(b []byte, item func([]byte) ([]byte, error)) ([]byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	for i := uint32(0); err == nil && i < n; i++ {
		b, err = item(b)
	}
	return b, err
}

// worker reads an item of workers.
func (d *replicaDecoder) worker(b []byte) ([]byte, error) {
	n, b, err := items(b, 2)
	if err != nil {
		return nil, err
	}
	var k fleet.Key
	if k.ID, b, err = msgp.ReadUint64Bytes(b); err != nil {
		return nil, err
	}
	if k.Rank, b, err = msgp.ReadUint32Bytes(b); err != nil {
		return nil, err
	}
	d.workers = append(d.workers, k)
	return d.skip(b, n-2)
}

// request reads an item of open.
func (d *replicaDecoder) request(b []byte) ([]byte, error) {
	if len(d.m.open) >= maxReplicaOpen {
		return nil, errReplicaMany
	}
	n, b, err := items(b, 5)
	if err != nil {
		return nil, err
	}
	var o load.OpenRequest
	var on uint64
	if o.Request, b, err = msgp.ReadStringZC(b); err != nil {
		return nil, err
	}
	for _, to := range []*uint64{&on, &o.PrefillTokens, &o.Blocks} {
		if *to, b, err = msgp.ReadUint64Bytes(b); err != nil {
			return nil, err
		}
	}
	if o.Prefilled, b, err = msgp.ReadBoolBytes(b); err != nil {
		return nil, err
	}
	d.m.open, d.on = append(d.m.open, o), append(d.on, on)
	return d.skip(b, n-5)
}

// items reads the head of an array that has so many items at least.
func items(b []byte, least uint32) (n uint32, rest []byte, err error) {
	n, rest, err = msgp.ReadArrayHeaderBytes(b)
	if err == nil && n < least {
		err = errReplicaShape
	}
	return n, rest, err
}

// skip passes over the items of an array that are not known.
func (d *replicaDecoder) skip(b []byte, n uint32) (rest []byte, err error) {
	for rest = b; n > 0 && err == nil; n-- {
		d.unknownFields++
		rest, err = msgp.Skip(rest)
	}
	return rest, err
}

// resolve says which workers the requests are on.
func (d *replicaDecoder) resolve() error {
	for i, on := range d.on {
		if on >= uint64(len(d.workers)) {
			return errReplicaWorker
		}
		d.m.open[i].Worker = d.workers[on]
	}
	return nil
}
