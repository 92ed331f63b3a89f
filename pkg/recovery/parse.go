package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// ErrOtherWorker is the error of an answer with events of a worker that was not
// asked about.
var ErrOtherWorker = errors.New("answer is about another worker")

// parser reads the items of one answer stream. Target and request are what was
// asked.
type parser struct {
	target  Target
	request Request
	done    <-chan struct{} // when closed, nobody wants the answer any more

	answer   Answer
	answered bool // the one item with data has come
	complete bool // the worker has said that there is no more

	decoder dynamo.Decoder
	message []byte // buffer for a batch of events
	scratch []byte // buffer for transcoding
	blocks  []kvevent.Block
	gone    []kvevent.EngineHash
	foreign uint64 // worker id of the first event of another worker
	alien   bool
}

// item reads the body of one data frame: {"data": answer, "complete_final": bool}.
func (p *parser) item(body []byte) error {
	b := body
	if len(b) > 0 && b[0] == '{' {
		// No msgpack map starts with that byte.
		var err error
		if p.scratch, err = transcode(p.scratch[:0], b); err != nil {
			return fmt.Errorf("item: %w", err)
		}
		b = p.scratch
	}
	rest, err := eachField(b, func(name string, b []byte) ([]byte, error) {
		switch name {
		case "data":
			if msgp.IsNil(b) {
				return b[1:], nil
			}
			return p.data(b)
		case "complete_final":
			var err error
			p.complete, b, err = msgp.ReadBoolBytes(b)
			return b, err
		}
		return msgp.Skip(b)
	})
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes follow it: %w", len(rest), ErrProtocol)
	}
	if err != nil {
		return fmt.Errorf("item: %w", err)
	}
	return nil
}

// data reads the answer itself: a map of one, its kind and what belongs to it.
func (p *parser) data(b []byte) ([]byte, error) {
	if p.answered {
		return nil, fmt.Errorf("a second answer: %w", ErrProtocol)
	}
	p.answered = true
	n, b, err := readMap(b)
	if err != nil {
		return nil, err
	}
	if n != 1 {
		return nil, fmt.Errorf("answer of %d kinds: %w", n, ErrProtocol)
	}
	word, b, err := readString(b)
	if err != nil {
		return nil, err
	}
	switch word {
	case "Events":
		p.answer.Kind = Events
		b, err = p.held(b)
	case "TreeDump":
		p.answer.Kind = TreeDump
		b, err = p.held(b)
	case "TooNew":
		p.answer.Kind = TooNew
		b, err = p.bounds(b, "requested_start", "requested_end", "newest_available")
	case "InvalidRange":
		p.answer.Kind = InvalidRange
		b, err = p.bounds(b, "start_id", "end_id", "")
	case "TreeDumpFailed":
		return nil, dumpFailed(b)
	case "Error":
		var text string
		if text, b, err = readString(b); err == nil {
			return nil, remoteError(word, text)
		}
	default:
		return nil, fmt.Errorf("answer of kind %.64q: %w", word, ErrProtocol)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", word, err)
	}
	return b, nil
}

// held reads what belongs to Events and TreeDump. A dump of only a part of what
// the rank holds must not replace all of it, so it is refused.
func (p *parser) held(b []byte) ([]byte, error) {
	var hasEvents, hasLast bool
	b, err := eachField(b, func(name string, b []byte) ([]byte, error) {
		var err error
		switch name {
		case "events":
			hasEvents = true
			return p.events(b)
		case "last_event_id":
			hasLast = true
			p.answer.LastEventID, b, err = readUint(b)
			return b, err
		case "reset_scope":
			var scope string
			if msgp.IsNil(b) {
				return b[1:], nil
			}
			if scope, b, err = readString(b); err == nil && scope != "all" {
				err = fmt.Errorf("%.64q is not known: %w", scope, ErrProtocol)
			}
			return b, err
		}
		return msgp.Skip(b)
	})
	if err == nil && (!hasEvents || !hasLast) {
		err = fmt.Errorf("no events or no last_event_id: %w", ErrProtocol)
	}
	return b, err
}

// bounds reads what belongs to TooNew and InvalidRange, by its names.
func (p *parser) bounds(b []byte, from, to, newest string) ([]byte, error) {
	seen := newest == ""
	b, err := eachField(b, func(name string, b []byte) ([]byte, error) {
		var err error
		switch name {
		case from:
			p.answer.From, b, err = readOptional(b)
		case to:
			p.answer.To, b, err = readOptional(b)
		case newest:
			seen = true
			p.answer.LastEventID, b, err = readUint(b)
		default:
			b, err = msgp.Skip(b)
		}
		return b, err
	})
	if err == nil && !seen {
		err = fmt.Errorf("no %s: %w", newest, ErrProtocol)
	}
	return b, err
}

// dumpFailed reads why there is no dump.
func dumpFailed(b []byte) error {
	var text string
	_, err := eachField(b, func(name string, b []byte) ([]byte, error) {
		if name != "message" {
			return msgp.Skip(b)
		}
		var err error
		text, b, err = readString(b)
		return b, err
	})
	if err != nil {
		return fmt.Errorf("TreeDumpFailed: %w", err)
	}
	return remoteError("TreeDumpFailed", text)
}

// batch is how many events are decoded at once.
const batch = 1024

// minEvent is less than the bytes of any event: it bounds how much memory an
// announced number of them gets.
const minEvent = 32

// events reads an array of events. The codec takes whole messages of the event
// plane, so the array goes through it in batches, each dressed as one. An event
// that it would skip is an error here: an answer with a hole is no recovery.
func (p *parser) events(b []byte) ([]byte, error) {
	if len(b) > 0 && msgp.NextType(b) != msgp.ArrayType {
		return nil, fmt.Errorf("events: not an array: %w", ErrProtocol)
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	if uint64(n) > uint64(len(b)) {
		return nil, msgp.ErrShortBytes
	}
	p.answer.Events = make([]kvevent.Event, 0, min(int(n), len(b)/minEvent))
	for left := int(n); left > 0; left -= batch {
		select {
		case <-p.done:
			return nil, context.Canceled
		default:
		}
		count, rest := min(left, batch), b
		for range count {
			if rest, err = msgp.Skip(rest); err != nil {
				return nil, err
			}
		}
		if err := p.batch(count, b[:len(b)-len(rest)]); err != nil {
			return nil, err
		}
		b = rest
	}
	s := p.decoder.Stats()
	p.answer.UnknownFields, p.answer.UnknownTiers = s.UnknownFields, s.UnknownTiers
	return b, nil
}

func (p *parser) batch(n int, events []byte) error {
	m := msgp.AppendMapHeader(p.message[:0], 2)
	m = msgp.AppendString(msgp.AppendString(m, "topic"), dynamo.TopicKVEvents)
	m = msgp.AppendString(m, "payload")
	head := msgp.AppendArrayHeader(nil, uint32(n))
	m = msgp.AppendBytesHeader(m, uint32(len(head)+len(events)))
	m = append(append(m, head...), events...)
	p.message = m

	scope := dynamo.EndpointScope
	if p.target.old() {
		scope = dynamo.ComponentScope
	}
	before := len(p.answer.Events)
	if _, err := p.decoder.Decode(m, scope, p.keep); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if got := len(p.answer.Events) - before; got != n {
		return fmt.Errorf("%d of %d events cannot be read (%w): %w", n-got, n, ErrProtocol, p.decoder.LastSkip())
	}
	if p.alien {
		return fmt.Errorf("%w: %d was asked, %d is in it", ErrOtherWorker, p.request.WorkerID, p.foreign)
	}
	return nil
}

// keep copies an event out of the decoder's buffers. Slices of small events share
// larger pieces of memory.
func (p *parser) keep(e *kvevent.Event) {
	if e.WorkerID != p.request.WorkerID && !p.alien {
		p.alien, p.foreign = true, e.WorkerID
	}
	c := *e
	c.Blocks, p.blocks = carve(p.blocks, e.Blocks)
	c.Gone, p.gone = carve(p.gone, e.Gone)
	c.Media = slices.Clone(e.Media)
	for i := range c.Media {
		c.Media[i].Offsets = slices.Clone(c.Media[i].Offsets)
	}
	p.answer.Events = append(p.answer.Events, c)
}

// piece is how many elements are allocated at once.
const piece = 1024

// carve copies values into the free part of a piece of memory, and returns the
// copy and the piece.
func carve[T any](free, values []T) (copied, rest []T) {
	if len(values) == 0 {
		return nil, free
	}
	if cap(free)-len(free) < len(values) {
		free = make([]T, 0, max(piece, len(values)))
	}
	start := len(free)
	free = append(free, values...)
	return free[start:len(free):len(free)], free
}

// eachField reads a map with words for keys. Field reads a value and returns what
// follows it.
func eachField(b []byte, field func(name string, b []byte) ([]byte, error)) ([]byte, error) {
	n, b, err := readMap(b)
	if err != nil {
		return nil, err
	}
	for range n {
		var name string
		if name, b, err = readString(b); err != nil {
			return nil, err
		}
		if b, err = field(name, b); err != nil {
			if _, ok := errors.AsType[*RemoteError](err); ok {
				return nil, err
			}
			return nil, fmt.Errorf("%.64s: %w", name, short(err))
		}
	}
	return b, nil
}

func readMap(b []byte) (uint32, []byte, error) {
	if len(b) > 0 && msgp.NextType(b) != msgp.MapType {
		return 0, nil, fmt.Errorf("not a map: %w", ErrProtocol)
	}
	n, b, err := msgp.ReadMapHeaderBytes(b)
	return n, b, short(err)
}

// maxString bounds the words of an answer that are copied.
const maxString = 64 << 10

func readString(b []byte) (string, []byte, error) {
	if len(b) > 0 && msgp.NextType(b) != msgp.StrType {
		return "", nil, fmt.Errorf("not a string: %w", ErrProtocol)
	}
	s, b, err := msgp.ReadStringZC(b)
	if err != nil {
		return "", nil, short(err)
	}
	if len(s) > maxString {
		return "", nil, fmt.Errorf("string of %d bytes: %w (%d)", len(s), ErrTooLarge, maxString)
	}
	return string(s), b, nil
}

// readUint reads an integer that is not negative, whichever way it is written.
func readUint(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.UintType, msgp.IntType:
		u, b, err := msgp.ReadUint64Bytes(b)
		return u, b, short(err)
	}
	if len(b) == 0 {
		return 0, nil, short(msgp.ErrShortBytes)
	}
	return 0, nil, fmt.Errorf("not an integer: %w", ErrProtocol)
}

func readOptional(b []byte) (*uint64, []byte, error) {
	if msgp.IsNil(b) {
		return nil, b[1:], nil
	}
	u, b, err := readUint(b)
	return &u, b, err
}

// short turns msgp's word for missing bytes into the usual one.
func short(err error) error {
	if errors.Is(err, msgp.ErrShortBytes) {
		return io.ErrUnexpectedEOF
	}
	return err
}
