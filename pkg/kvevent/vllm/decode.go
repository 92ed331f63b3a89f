package vllm

import (
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// Config says whose messages a Decoder reads.
type Config struct {
	WorkerID  uint64 // of every event
	Rank      uint32 // of batches that do not state one
	BlockSize int    // tokens per block, at least 1: events of other sizes are skipped
}

// Batch is what a message says about itself.
type Batch struct {
	Time float64 // Unix seconds, 0 when not stated
	Rank uint32  // data-parallel rank, of the configuration when not stated
}

// Stats counts what a Decoder has seen. Every event is in exactly one of Events,
// BadEvents and the five after it.
type Stats struct {
	Messages      uint64 // calls of Decode
	BadMessages   uint64 // calls that returned an error
	Events        uint64 // events given to apply, those of unknown tiers too
	BadEvents     uint64 // well-formed values in an event's place that are no event: skipped
	UnknownEvents uint64 // events of a type it does not know: skipped
	OtherGroups   uint64 // events of cache groups that are not main attention: skipped
	OtherSizes    uint64 // stored events of another block size: skipped
	OddSpans      uint64 // stored events whose tokens do not fill their blocks exactly: skipped
	Placeholders  uint64 // stored events without tokens, of an offload tier: skipped
	UnknownTiers  uint64 // events about a medium it does not know: of kvevent.NumTiers
	UnknownFields uint64 // fields that this package does not know: skipped
	IgnoredKeys   uint64 // extra keys that do not enter Dynamo's hash: a match may be promised that is none
}

// Decoder turns the messages of one publisher, which is one rank of an engine,
// into events. It reuses its buffers: in steady state it allocates nothing. It is
// not for concurrent use. Make one with NewDecoder.
type Decoder struct {
	cfg    Config
	layout block.Layout
	stats  Stats

	lastSkip   error
	lastMedium string
	lastSize   uint64
	groups     groups

	event  kvevent.Event // being read
	fields fields        // of the event being read
	events []kvevent.Event
	blocks []kvevent.Block
	gone   []kvevent.EngineHash
	media  []kvevent.Media

	engine []kvevent.EngineHash
	tokens []uint32
	hashes []block.Hash
	window []uint32
	keys   []uint64
}

// NewDecoder returns a decoder, or an error when the block size is not positive.
func NewDecoder(cfg Config) (*Decoder, error) {
	if cfg.BlockSize < 1 || cfg.BlockSize > math.MaxInt32 {
		return nil, fmt.Errorf("block size of %d tokens is out of range", cfg.BlockSize)
	}
	return &Decoder{cfg: cfg, layout: block.Layout{Size: cfg.BlockSize}}, nil
}

// Restarted tells the decoder that the engine process is a new one: what its
// cache groups were is forgotten.
func (d *Decoder) Restarted() { d.groups = groups{} }

// Stats returns the counts so far.
func (d *Decoder) Stats() Stats { return d.stats }

// LastSkip returns why the latest bad event was skipped, nil if none was.
func (d *Decoder) LastSkip() error { return d.lastSkip }

// LastMedium returns the latest medium that is not known, empty if none was.
func (d *Decoder) LastMedium() string { return d.lastMedium }

// LastSize returns the block size of the latest event that was skipped for it, 0
// if none was.
func (d *Decoder) LastSize() uint64 { return d.lastSize }

// errLeftovers is the error of a message that goes on after its batch.
var errLeftovers = errors.New("bytes follow the batch")

// Decode reads the payload of one message and calls apply for each event, in
// order. The event and its slices are valid only during that call of apply. Events
// have no id: ID is 0. Copies is true. Of a cleared event AllRanks is false.
//
// What is no event, or not one to keep, is skipped and counted; the others reach
// apply. A batch says last whose events it holds, so one that is malformed or cut
// short is lost as a whole: the error is io.ErrUnexpectedEOF or one of msgpack's.
// Only when bytes follow a whole batch its events are applied all the same.
func (d *Decoder) Decode(msg []byte, apply func(*kvevent.Event)) (Batch, error) {
	d.stats.Messages++
	batch, rest, err := d.readBatch(msg)
	if err != nil {
		d.stats.BadMessages++
		return batch, err
	}
	for i := range d.events {
		d.events[i].Rank = batch.Rank
		d.stats.Events++
		apply(&d.events[i])
	}
	if len(rest) > 0 {
		d.stats.BadMessages++
		return batch, errLeftovers
	}
	return batch, nil
}

// The fields of a batch, in their positional order.
var batchFields = []string{"ts", "events", "data_parallel_rank"}

const (
	batchTime = iota
	batchEvents
	batchRank
)

var errNoEvents = errors.New("no events")

// readBatch reads a whole message into d.events.
func (d *Decoder) readBatch(b []byte) (batch Batch, rest []byte, err error) {
	d.events = d.events[:0]
	batch.Rank = d.cfg.Rank
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return batch, nil, err
	}
	hasEvents := false
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, batchFields); err != nil {
			return batch, nil, err
		}
		switch f {
		case batchTime:
			batch.Time, b, err = readTime(b)
		case batchEvents:
			b, err = d.readEvents(b)
			hasEvents = true
		case batchRank:
			if msgp.IsNil(b) {
				b = b[1:]
			} else {
				batch.Rank, b, err = msgpack.ReadUint32(b)
			}
		default:
			d.stats.UnknownFields++
			b, err = msgpack.Skip(b)
		}
		if err != nil {
			return batch, nil, msgpack.FieldError(batchFields, f, err)
		}
	}
	if !hasEvents {
		return batch, nil, errNoEvents
	}
	return batch, b, nil
}

// readTime reads the time of a batch, in any encoding of a number. It is for
// people, so what is no number is 0 and no error.
func readTime(b []byte) (float64, []byte, error) {
	rest, err := msgpack.Skip(b)
	if err != nil {
		return 0, nil, err
	}
	switch msgp.NextType(b) {
	case msgp.Float64Type:
		f, _, _ := msgp.ReadFloat64Bytes(b) // whole: it was passed
		return f, rest, nil
	case msgp.UintType, msgp.IntType:
		u, _, err := msgpack.ReadUint(b)
		if err != nil {
			u = 0 // before 1970
		}
		return float64(u), rest, nil
	}
	return 0, rest, nil
}

// readEvents reads the events of a batch. It returns an error only when a value
// is not whole msgpack, so that what follows cannot be found.
func (d *Decoder) readEvents(b []byte) ([]byte, error) {
	d.events = d.events[:0]
	d.blocks, d.gone, d.media = d.blocks[:0], d.gone[:0], d.media[:0]
	n, b, err := msgpack.ReadArray(b)
	if err != nil {
		return nil, err
	}
	for i := range n {
		rest, bad := d.readEvent(b)
		if bad != nil {
			if rest, err = msgpack.Skip(b); err != nil {
				return nil, fmt.Errorf("event %d of %d: %w", i+1, n, err)
			}
			d.stats.BadEvents++
			d.lastSkip = bad
		}
		b = rest
	}
	return b, nil
}
