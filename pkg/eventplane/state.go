package eventplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/index"
)

// A state is what a plane knows, for a replica that starts later. All numbers are
// little-endian, times are milliseconds since 1970 with 0 for none:
//
//	magic, 8 bytes, the last one is the version
//	made u64, sequence u64, stream created u64 (nanoseconds)
//	namespace, stream: each its length u16 and its bytes
//	cursors u32; each: id u64, rank u32, last id u64, live u64, source u64,
//	                   replaced u64, changed u64, published u64, born u64, flags u8;
//	                   ordered by worker
//	XXH3 of all before, u64
//	a snapshot of the index, with a checksum of its own, to the end
const (
	stateMagic   = "wpstate"
	stateVersion = 1

	stateNumbers    = 8 + 8 + 8
	cursorStateSize = 8 + 4 + 7*8 + 1

	flagPartial = 1
	flagUnsure  = 2
	flagHeard   = 4

	// maxStateCursors bounds the workers of a state. A plane follows more of them than its
	// index holds: those that left, and strangers.
	maxStateCursors = 4 * index.MaxWorkers
	// maxStateName bounds a namespace and the name of a stream, in bytes.
	maxStateName = 1 << 10
)

var (
	// errState is what readState returns for what is no undamaged state.
	errState = errors.New("not an undamaged state of an event plane")
	// errStateVersion is errState for a state that another release wrote.
	errStateVersion = fmt.Errorf("%w: it is of another version", errState)
)

// stateHeader says where a state is from.
type stateHeader struct {
	Made      time.Time // when it was written
	Namespace string    // base namespace that the plane hears

	// Of the stream that the events came from; zero without one.

	Stream   string
	Created  time.Time // tells a stream from another of the same name
	Sequence uint64    // all messages up to here are in the state
}

// cursorState is how far the events of one worker are known; see cursor.
type cursorState struct {
	Key       fleet.Key
	LastID    uint64 // of the newest event
	Live      uint64 // newest that came over NATS
	Source    uint64 // who speaks for the worker; 0 where ids alone tell
	Replaced  uint64 // who did before
	Changed   time.Time
	Published time.Time
	Born      time.Time
	Partial   bool // what it held before some moment is not known
	Unsure    bool // what is known of it is not to be used: it was being asked
	Heard     bool // Source is set
}

// writeState writes a state. Last comes what snapshot writes, in the form that
// [index.Index.Load] reads.
func writeState(w io.Writer, h stateHeader, cursors []cursorState, snapshot func(io.Writer) error) error {
	head, err := encodeState(h, cursors)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write the state of an event plane: %w", err)
	}
	return snapshot(w)
}

// encodeState returns all of a state that comes before the snapshot.
func encodeState(h stateHeader, cursors []cursorState) ([]byte, error) {
	if len(cursors) > maxStateCursors {
		return nil, fmt.Errorf("%d workers are more than a state holds; its limit is %d", len(cursors), maxStateCursors)
	}
	if len(h.Namespace) > maxStateName || len(h.Stream) > maxStateName {
		return nil, fmt.Errorf("a namespace or stream has a name of more than %d bytes", maxStateName)
	}
	b := []byte(stateMagic)
	b = append(b, stateVersion)
	b = appendMillis(b, h.Made)
	b = binary.LittleEndian.AppendUint64(b, h.Sequence)
	created := uint64(0)
	if !h.Created.IsZero() {
		created = uint64(h.Created.UnixNano())
	}
	b = binary.LittleEndian.AppendUint64(b, created)
	for _, name := range []string{h.Namespace, h.Stream} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
		b = append(b, name...)
	}
	cursors = slices.SortedFunc(slices.Values(cursors), func(x, y cursorState) int { return x.Key.Compare(y.Key) })
	b = binary.LittleEndian.AppendUint32(b, uint32(len(cursors)))
	for i := range cursors {
		if i > 0 && cursors[i].Key == cursors[i-1].Key {
			return nil, fmt.Errorf("worker %s is in a state twice", cursors[i].Key)
		}
		b = cursors[i].append(b)
	}
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b)), nil
}

func (c *cursorState) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.Key.ID)
	b = binary.LittleEndian.AppendUint32(b, c.Key.Rank)
	for _, n := range []uint64{c.LastID, c.Live, c.Source, c.Replaced} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	for _, t := range []time.Time{c.Changed, c.Published, c.Born} {
		b = appendMillis(b, t)
	}
	flags := byte(0)
	for _, f := range c.flags() {
		if *f.set {
			flags |= f.bit
		}
	}
	return append(b, flags)
}

type stateFlag struct {
	bit byte
	set *bool
}

func (c *cursorState) flags() []stateFlag {
	return []stateFlag{{flagPartial, &c.Partial}, {flagUnsure, &c.Unsure}, {flagHeard, &c.Heard}}
}

func appendMillis(b []byte, t time.Time) []byte {
	return binary.LittleEndian.AppendUint64(b, uint64(max(t.UnixMilli(), 0)))
}

// readState reads a state up to its snapshot, which rest then gives. Nothing of
// the snapshot is looked at here. It fails with errState, errStateVersion, or with
// what r fails with.
func readState(r io.Reader) (h stateHeader, cursors []cursorState, rest io.Reader, err error) {
	s := stateReader{in: r, hash: xxh3.New()}
	magic := s.next(len(stateMagic) + 1)
	switch {
	case s.err != nil:
		return h, nil, nil, s.err
	case string(magic[:len(stateMagic)]) != stateMagic:
		return h, nil, nil, errState
	case magic[len(stateMagic)] != stateVersion:
		return h, nil, nil, fmt.Errorf("%w: %d, and this release reads %d", errStateVersion, magic[len(stateMagic)], stateVersion)
	}
	h = s.header()
	cursors = s.cursors()
	sum := s.hash.Sum64()
	if got := s.number(); s.err == nil && got != sum {
		s.err = fmt.Errorf("%w: its checksum is wrong", errState)
	}
	if s.err != nil {
		return stateHeader{}, nil, nil, s.err
	}
	return h, cursors, r, nil
}

// stateReader reads parts of a state until one fails. What it returns then is
// not to be used.
type stateReader struct {
	in   io.Reader
	hash *xxh3.Hasher
	buf  []byte
	err  error
}

// next returns the next n bytes, valid until the next call; zeros after an error.
func (s *stateReader) next(n int) []byte {
	s.buf = slices.Grow(s.buf[:0], n)[:n]
	if s.err == nil {
		if _, err := io.ReadFull(s.in, s.buf); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			s.err = fmt.Errorf("%w: it ends early", errState)
		} else if err != nil {
			s.err = fmt.Errorf("read the state of an event plane: %w", err)
		}
	}
	if s.err != nil {
		clear(s.buf)
	}
	_, _ = s.hash.Write(s.buf) // never fails
	return s.buf
}

func (s *stateReader) number() uint64 { return binary.LittleEndian.Uint64(s.next(8)) }

func (s *stateReader) header() (h stateHeader) {
	numbers := s.next(stateNumbers)
	made := s.millis(numbers)
	h.Sequence = binary.LittleEndian.Uint64(numbers[8:])
	if ns := binary.LittleEndian.Uint64(numbers[16:]); ns != 0 {
		h.Created = time.Unix(0, int64(ns)).UTC()
	}
	h.Made = made
	h.Namespace = s.name()
	h.Stream = s.name()
	return h
}

func (s *stateReader) name() string {
	n := int(binary.LittleEndian.Uint16(s.next(2)))
	if n > maxStateName && s.err == nil {
		s.err = fmt.Errorf("%w: a name of %d bytes", errState, n)
	}
	if s.err != nil {
		return ""
	}
	return string(s.next(n))
}

// millis reads a time. One that a person could not write down is damage.
func (s *stateReader) millis(b []byte) time.Time {
	ms := binary.LittleEndian.Uint64(b)
	switch {
	case ms == 0:
		return time.Time{}
	case ms > math.MaxInt64/uint64(time.Millisecond):
		if s.err == nil {
			s.err = fmt.Errorf("%w: a time that is none", errState)
		}
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}

func (s *stateReader) cursors() []cursorState {
	n := int(binary.LittleEndian.Uint32(s.next(4)))
	if n > maxStateCursors && s.err == nil {
		s.err = fmt.Errorf("%w: it tells of %d workers, more than %d", errState, n, maxStateCursors)
	}
	var all []cursorState
	for i := 0; i < n && s.err == nil; i++ {
		c := s.cursor()
		if s.err == nil && i > 0 && all[i-1].Key.Compare(c.Key) >= 0 {
			s.err = fmt.Errorf("%w: its workers are out of order", errState)
		}
		all = append(all, c)
	}
	return all
}

func (s *stateReader) cursor() (c cursorState) {
	b := s.next(cursorStateSize)
	c.Key = fleet.Key{ID: binary.LittleEndian.Uint64(b), Rank: binary.LittleEndian.Uint32(b[8:])}
	b = b[12:]
	for i, n := range []*uint64{&c.LastID, &c.Live, &c.Source, &c.Replaced} {
		*n = binary.LittleEndian.Uint64(b[8*i:])
	}
	for i, t := range []*time.Time{&c.Changed, &c.Published, &c.Born} {
		*t = s.millis(b[32+8*i:])
	}
	flags := b[56]
	for _, f := range c.flags() {
		*f.set = flags&f.bit != 0
		flags &^= f.bit
	}
	if flags != 0 && s.err == nil {
		s.err = fmt.Errorf("%w: unknown flags %#x", errState, flags)
	}
	return c
}
