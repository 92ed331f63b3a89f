package vllm

import (
	"errors"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// eventFields are the fields of all types of events. The first twelve are those
// of a stored event in their positional order (engines.md 1.1).
var eventFields = []string{
	"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
	"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
	"cache_salt", "locality", "ownership",
}

const (
	eventType = iota
	eventHashes
	eventParent
	eventTokens
	eventSize
	eventAdapterID
	eventMedium
	eventAdapter
	eventKeys
	eventGroup
	eventSpec
	eventWindow
	eventSalt
	eventLocality
	eventOwnership
	positions = eventWindow + 1 // of a stored event
)

// removedPositions are the fields of a removed event in their positional order.
var removedPositions = [...]int{eventType, eventHashes, eventMedium, eventGroup}

// The types of events, as they are on the wire.
const (
	typeStored  = "BlockStored"
	typeRemoved = "BlockRemoved"
	typeCleared = "AllBlocksCleared"
)

var (
	errNoType   = errors.New("no type")
	errNoHashes = errors.New("no block_hashes")
	errNoTokens = errors.New("no token_ids")
	errNoSize   = errors.New("no block_size")
	errOwn      = errors.New("a block is its own parent")
)

// fields are what an event says beside what goes into its kvevent.Event. Words
// and keys are views of the message.
type fields struct {
	kind                      kvevent.Kind // 0 of a type that is not known
	hasHashes, hasTokens      bool
	hasSize, hasGroup         bool
	size, group               uint64
	adapter, salt, spec, keys []byte
	unknown                   uint64 // fields that are not known
}

// readEvent reads one event and, if it is one to keep, appends it to d.events. An
// error means that the value is no event.
func (d *Decoder) readEvent(b []byte) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	d.event = kvevent.Event{WorkerID: d.cfg.WorkerID, Copies: true}
	d.fields = fields{}
	d.engine, d.tokens = d.engine[:0], d.tokens[:0]
	hasType := false
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, eventFields); err != nil {
			return nil, err
		}
		if !l.Keyed {
			f = d.position(i)
		}
		hasType = hasType || f == eventType
		if b, err = d.readField(f, b); err != nil {
			return nil, msgpack.FieldError(eventFields, f, err)
		}
	}
	if !hasType {
		return nil, errNoType
	}
	return b, d.keep()
}

// position says which field the i-th value of a positional event is, -1 for none.
// Its type comes first and decides.
func (d *Decoder) position(i int) int {
	switch {
	case i == 0:
		return eventType
	case d.fields.kind == kvevent.Stored && i < positions:
		return i
	case d.fields.kind == kvevent.Removed && i < len(removedPositions):
		return removedPositions[i]
	}
	return -1
}

// readField reads the value of a field.
func (d *Decoder) readField(f int, b []byte) (rest []byte, err error) {
	e := &d.fields
	switch f {
	case eventType:
		return d.readType(b)
	case eventHashes:
		e.hasHashes = true
		d.engine, b, err = readHashes(d.engine[:0], b)
		return b, err
	case eventTokens:
		e.hasTokens = true
		d.tokens, b, err = readTokens(d.tokens[:0], b)
		return b, err
	case -1:
		e.unknown++
		return msgpack.Skip(b)
	}
	if msgp.IsNil(b) {
		return b[1:], nil // like a missing one
	}
	switch f {
	case eventParent:
		d.event.Parent, b, err = readHash(b)
		d.event.HasParent = d.event.Parent != 0 // some senders mean none by 0
	case eventSize:
		e.hasSize = true
		e.size, b, err = msgpack.ReadUint(b)
	case eventMedium:
		b, err = d.readMedium(b)
	case eventAdapter:
		e.adapter, b, err = msgpack.ReadWord(b)
	case eventSalt:
		e.salt, b, err = msgpack.ReadWord(b)
	case eventSpec:
		e.spec, b, err = msgpack.ReadWord(b)
	case eventGroup:
		e.hasGroup = true
		e.group, b, err = msgpack.ReadUint(b)
	case eventKeys:
		e.keys = b
		b, err = msgpack.Skip(b)
	default: // known, and nothing here depends on it
		b, err = msgpack.Skip(b)
	}
	return b, err
}

// readType reads the type of an event. One that is not known is no error: new
// engines may send what old routers need not know.
func (d *Decoder) readType(b []byte) ([]byte, error) {
	word, b, err := msgpack.ReadWord(b)
	if err != nil {
		return nil, err
	}
	switch string(word) {
	case typeStored:
		d.fields.kind = kvevent.Stored
	case typeRemoved:
		d.fields.kind = kvevent.Removed
	case typeCleared:
		d.fields.kind = kvevent.Cleared
	}
	return b, nil
}

// maxMedium bounds the medium that is remembered for people.
const maxMedium = 64

// readMedium reads where the blocks are (dynamo.md 2.7).
func (d *Decoder) readMedium(b []byte) ([]byte, error) {
	word, b, err := msgpack.ReadWord(b)
	if err != nil {
		return nil, err
	}
	switch string(word) {
	case "GPU", "DEVICE":
		d.event.Tier = kvevent.Device
	case "CPU", "CPU_PINNED", "CPU_TIER1":
		d.event.Tier = kvevent.Host
	case "CPU_TIER2", "DISK", "NVME":
		d.event.Tier = kvevent.Disk
	case "EXTERNAL", "NETWORK", "REMOTE", "SHARED":
		d.event.Tier = kvevent.External
	default:
		d.event.Tier = kvevent.NumTiers
		if word = word[:min(len(word), maxMedium)]; d.lastMedium != string(word) {
			d.lastMedium = string(word)
		}
	}
	return b, nil
}

// keep judges the event that was read, and appends it to d.events if it is one to
// keep. An error means that it is none.
func (d *Decoder) keep() error {
	e := &d.fields
	d.event.Kind = e.kind
	if e.kind != 0 {
		d.stats.UnknownFields += e.unknown
	}
	switch e.kind {
	case kvevent.Stored:
		if !e.hasHashes {
			return errNoHashes
		}
		if !d.groups.learn(e) {
			d.stats.OtherGroups++
			return nil
		}
		if ok, err := d.store(); !ok {
			return err
		}
	case kvevent.Removed:
		if !e.hasHashes {
			return errNoHashes
		}
		if !d.groups.main(e) {
			d.stats.OtherGroups++
			return nil
		}
		from := len(d.gone)
		d.gone = append(d.gone, d.engine...)
		d.event.Gone = d.gone[from:len(d.gone):len(d.gone)]
	case kvevent.Cleared:
		d.event.Tier = kvevent.Device
	default:
		d.stats.UnknownEvents++ // and so are its fields
		return nil
	}
	if d.event.Tier >= kvevent.NumTiers {
		d.stats.UnknownTiers++
	}
	d.events = append(d.events, d.event)
	return nil
}
