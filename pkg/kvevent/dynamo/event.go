package dynamo

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// The fields of dynamo.md 1.4, in their positional order.
var (
	routerEventFields = []string{"worker_id", "storage_tier", "residency_domain", "event", "state_source"}
	cacheEventFields  = []string{"event_id", "data", "dp_rank"}
	storedFields      = []string{"parent_hash", "start_position", "blocks"}
	removedFields     = []string{"block_hashes"}
	blockFields       = []string{"block_hash", "tokens_hash", "mm_extra_info"}
	mediaFields       = []string{"mm_objects"}
	objectFields      = []string{"mm_hash", "offsets"}
)

const (
	routerWorker = iota
	routerTier
	routerResidency
	routerEvent
	routerSource
)

const (
	cacheID = iota
	cacheData
	cacheRank
)

const (
	storedParent = iota
	storedStart
	storedBlocks
)

const (
	blockEngine = iota
	blockTokens
	blockMedia
)

const (
	objectHash = iota
	objectOffsets
)

// residencyWorker is the residency domain of a worker's own memory.
const residencyWorker = "worker"

var (
	errTwice     = errors.New("given twice")
	errNoWorker  = errors.New("no worker_id")
	errNoEvent   = errors.New("no event")
	errNoID      = errors.New("no event_id")
	errNoData    = errors.New("no data")
	errNoBlocks  = errors.New("no blocks")
	errNoHashes  = errors.New("no block_hashes")
	errNoHash    = errors.New("no block_hash or tokens_hash")
	errNoMMHash  = errors.New("no mm_hash")
	errOffsets   = errors.New("not a pair of start and end")
	errData      = errors.New("neither one named change nor a word")
	errLeftovers = errors.New("bytes follow the last event")
)

// readRouterEvent reads one event with its worker and tier into d.
func (d *Decoder) readRouterEvent(b []byte) ([]byte, error) {
	d.event = kvevent.Event{}
	d.resetData()
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	var hasWorker, hasEvent bool
	for i := range l.N {
		var f int
		if l.Keyed {
			f, b, err = l.Field(b, i, routerEventFields)
		} else {
			f = routerPosition(i, msgp.NextType(b), hasEvent)
		}
		if err != nil {
			return nil, err
		}
		switch f {
		case routerWorker:
			if hasWorker {
				return nil, msgpack.FieldError(routerEventFields, f, errTwice)
			}
			d.event.WorkerID, b, err = msgpack.ReadUint(b)
			hasWorker = true
		case routerTier:
			b, err = d.readTier(b)
		case routerResidency:
			b, err = d.readResidency(b)
		case routerEvent:
			b, err = d.readCacheEvent(b)
			hasEvent = true
		case routerSource:
			b, err = msgpack.Skip(b) // known; says how the sender came to know
		default:
			d.stats.UnknownFields++
			b, err = msgpack.Skip(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(routerEventFields, f, err)
		}
	}
	switch {
	case !hasWorker:
		return nil, errNoWorker
	case !hasEvent:
		return nil, errNoEvent
	}
	return b, nil
}

// routerPosition says which field the i-th value of a positional event is. The
// tier and the residency domain came later, so old events lack them: words are
// taken for those, and the first value with parts for the event.
func routerPosition(i int, t msgp.Type, hasEvent bool) int {
	switch {
	case i == 0:
		return routerWorker
	case hasEvent && i <= routerSource:
		return routerSource
	case hasEvent:
		return -1
	case t == msgp.MapType || t == msgp.ArrayType:
		return routerEvent
	case i == 1:
		return routerTier
	case i == 2:
		return routerResidency
	}
	return -1
}

// readTier reads a storage tier's word; nil is device, like a missing one. A word
// that is not known is no reason to lose the event: its id counts.
func (d *Decoder) readTier(b []byte) ([]byte, error) {
	d.event.Tier = kvevent.Device
	if msgp.IsNil(b) {
		return b[1:], nil
	}
	word, b, err := msgpack.ReadWord(b)
	if err != nil {
		return nil, err
	}
	for t := range kvevent.Tier(kvevent.NumTiers) {
		if string(word) == t.String() {
			d.event.Tier = t
			return b, nil
		}
	}
	d.event.Tier = kvevent.NumTiers
	d.lastTier = d.intern(word[:min(len(word), maxWords)])
	return b, nil
}

// readResidency reads a residency domain's word; nil is not stated.
func (d *Decoder) readResidency(b []byte) ([]byte, error) {
	d.event.Residency = ""
	if msgp.IsNil(b) {
		return b[1:], nil
	}
	word, b, err := msgpack.ReadWord(b)
	if err == nil {
		d.event.Residency = d.intern(word)
	}
	return b, err
}

// readCacheEvent reads the event proper: its id, what happened, and the rank.
func (d *Decoder) readCacheEvent(b []byte) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	var hasID, hasData bool
	d.event.Rank = 0
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, cacheEventFields); err != nil {
			return nil, err
		}
		switch f {
		case cacheID:
			d.event.ID, b, err = msgpack.ReadUint(b)
			hasID = true
		case cacheData:
			b, err = d.readData(b)
			hasData = true
		case cacheRank:
			d.event.Rank = 0
			if msgp.IsNil(b) {
				b = b[1:]
			} else {
				d.event.Rank, b, err = msgpack.ReadUint32(b)
			}
		default:
			d.stats.UnknownFields++
			b, err = msgpack.Skip(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(cacheEventFields, f, err)
		}
	}
	switch {
	case !hasID:
		return nil, errNoID
	case !hasData:
		return nil, errNoData
	}
	return b, nil
}

// resetData forgets what happened in the event before, keeping the buffers.
func (d *Decoder) resetData() {
	e := &d.event
	e.Kind = 0
	e.Parent, e.HasParent = 0, false
	e.Start, e.HasStart = 0, false
	d.blocks, d.gone = d.blocks[:0], d.gone[:0]
	d.media, d.offsets = d.media[:0], d.offsets[:0]
}

// readData reads what happened: a map of one change, or the bare word "cleared".
func (d *Decoder) readData(b []byte) ([]byte, error) {
	d.resetData()
	if msgp.NextType(b) == msgp.StrType {
		word, b, err := msgpack.ReadWord(b)
		if err != nil {
			return nil, err
		}
		if string(word) != "cleared" {
			return nil, fmt.Errorf("unknown change %.64q", word)
		}
		d.event.Kind = kvevent.Cleared
		return b, nil
	}
	if msgp.NextType(b) != msgp.MapType {
		return nil, errData
	}
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, msgpack.Short(err)
	}
	if n != 1 {
		return nil, errData
	}
	word, b, err := msgpack.ReadWord(b)
	if err != nil {
		return nil, err
	}
	switch string(word) {
	case "stored":
		d.event.Kind = kvevent.Stored
		return d.readStored(b)
	case "removed":
		d.event.Kind = kvevent.Removed
		return d.readRemoved(b)
	case "cleared":
		d.event.Kind = kvevent.Cleared
		if !msgp.IsNil(b) {
			return nil, errors.New("cleared: not nil")
		}
		return b[1:], nil
	}
	return nil, fmt.Errorf("unknown change %.64q", word)
}
