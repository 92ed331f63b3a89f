package vllm

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
)

// Form is how the events of a batch are written.
type Form uint8

// Forms of events. The batch around them is an array in both.
const (
	ArrayForm Form = iota + 1 // bare values: vLLM up to 0.23
	MapForm                   // names and values: vLLM 0.24 and newer
)

// Event is an event as an engine says it.
type Event struct {
	Kind kvevent.Kind

	// Of Stored: the block that the first one follows (HasParent), the tokens of all
	// blocks, the tokens per block, and what else makes blocks differ. Salt is of
	// MapForm only; Media may have no offsets.
	Parent    kvevent.EngineHash
	HasParent bool
	Tokens    []uint32
	BlockSize int
	Adapter   string
	Salt      string
	Media     []kvevent.Media

	// Of Stored and Removed.
	Hashes []kvevent.EngineHash
	Medium string // nil when empty
	Group  uint32 // with HasGroup: the cache group
	// Of Stored, with HasGroup: what the group is, nil when empty.
	Spec     string
	HasGroup bool
}

var errForm = errors.New("does not fit the form")

// AppendBatch appends the payload of one message with the events to dst, byte for
// byte as vLLM writes it, and returns the extended slice. The rank of the batch is
// always stated. It returns dst unchanged and an error for an event of no kind, a
// salt in ArrayForm, and media that are of no block.
func AppendBatch(dst []byte, form Form, batch Batch, events []Event) ([]byte, error) {
	b := msgp.AppendArrayHeader(dst, uint32(len(batchFields)))
	b = msgp.AppendFloat64(b, batch.Time)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for i := range events {
		w := writer{b: b, keyed: form == MapForm}
		if err := w.event(form, &events[i]); err != nil {
			return dst, fmt.Errorf("event %d: %w", i, err)
		}
		b = w.b
	}
	return msgp.AppendUint32(b, batch.Rank), nil
}

// writer writes the fields of an event, with their names or without.
type writer struct {
	b     []byte
	keyed bool
}

// head starts an event of n fields beside its type.
func (w *writer) head(n int, word string) {
	if w.keyed {
		w.b = msgp.AppendMapHeader(w.b, uint32(n)+1)
	} else {
		w.b = msgp.AppendArrayHeader(w.b, uint32(n)+1)
	}
	w.key(eventType)
	w.b = msgp.AppendString(w.b, word)
}

func (w *writer) key(f int) {
	if w.keyed {
		w.b = msgp.AppendString(w.b, eventFields[f])
	}
}

// word writes a word, nil when it is empty.
func (w *writer) word(f int, s string) {
	if w.key(f); s == "" {
		w.b = msgp.AppendNil(w.b)
	} else {
		w.b = msgp.AppendString(w.b, s)
	}
}

func (w *writer) hashes(hashes []kvevent.EngineHash) {
	w.key(eventHashes)
	w.b = msgp.AppendArrayHeader(w.b, uint32(len(hashes)))
	for _, h := range hashes {
		w.b = msgp.AppendUint64(w.b, uint64(h))
	}
}

func (w *writer) group(e *Event) {
	w.key(eventGroup)
	w.b = msgp.AppendUint32(w.b, e.Group)
}

// event writes one event.
func (w *writer) event(form Form, e *Event) error {
	if form != ArrayForm && form != MapForm {
		return fmt.Errorf("unknown form %d", form)
	}
	switch e.Kind {
	case kvevent.Stored:
		return w.stored(e)
	case kvevent.Removed:
		n := 2
		if e.HasGroup {
			n++
		}
		w.head(n, typeRemoved)
		w.hashes(e.Hashes)
		if w.word(eventMedium, e.Medium); e.HasGroup {
			w.group(e)
		}
	case kvevent.Cleared:
		w.head(0, typeCleared)
	default:
		return fmt.Errorf("unknown kind %d", e.Kind)
	}
	return nil
}

// stored writes a stored event.
func (w *writer) stored(e *Event) error {
	n := eventKeys
	if e.HasGroup {
		n = eventSpec
	}
	if e.Salt != "" {
		if n++; !w.keyed {
			return fmt.Errorf("a salt %w", errForm)
		}
	}
	w.head(n, typeStored)
	w.hashes(e.Hashes)
	if w.key(eventParent); e.HasParent {
		w.b = msgp.AppendUint64(w.b, uint64(e.Parent))
	} else {
		w.b = msgp.AppendNil(w.b)
	}
	w.key(eventTokens)
	w.b = msgp.AppendArrayHeader(w.b, uint32(len(e.Tokens)))
	for _, t := range e.Tokens {
		w.b = msgp.AppendUint32(w.b, t)
	}
	w.key(eventSize)
	w.b = msgp.AppendInt(w.b, e.BlockSize)
	w.key(eventAdapterID)
	w.b = msgp.AppendNil(w.b)
	w.word(eventMedium, e.Medium)
	w.word(eventAdapter, e.Adapter)
	if err := w.media(e); err != nil {
		return err
	}
	if e.HasGroup {
		w.group(e)
		w.word(eventSpec, e.Spec)
	}
	if e.Salt != "" {
		w.word(eventSalt, e.Salt)
	}
	return nil
}

// media writes the extra keys of a stored event: a list per block, of pairs of an
// object's identifier and where it starts.
func (w *writer) media(e *Event) error {
	w.key(eventKeys)
	if len(e.Media) == 0 {
		w.b = msgp.AppendNil(w.b)
		return nil
	}
	w.b = msgp.AppendArrayHeader(w.b, uint32(len(e.Hashes)))
	media := e.Media
	for i := range e.Hashes {
		n := 0
		for n < len(media) && media[n].Block == i {
			n++
		}
		if n == 0 {
			w.b = msgp.AppendNil(w.b)
			continue
		}
		w.b = msgp.AppendArrayHeader(w.b, uint32(n))
		for _, m := range media[:n] {
			start := uint32(0)
			if len(m.Offsets) > 0 {
				start = m.Offsets[0][0]
			}
			w.b = msgp.AppendArrayHeader(w.b, 2)
			w.b = msgp.AppendString(w.b, fmt.Sprintf("%016x", m.Hash)+mediaZeros)
			w.b = msgp.AppendUint32(w.b, start)
		}
		media = media[n:]
	}
	if len(media) > 0 {
		return fmt.Errorf("media of block %d %w", media[0].Block, errForm)
	}
	return nil
}
