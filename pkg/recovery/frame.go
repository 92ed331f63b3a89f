package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrTooLarge is the error of something that is larger than we take. Of an
// answer, see [Config.MaxResponseBytes].
var ErrTooLarge = errors.New("larger than allowed")

// ErrProtocol is the error of a worker that does not speak Dynamo's request
// plane as this package knows it.
var ErrProtocol = errors.New("not as the protocol says")

// A frame is one message of the way back, and the payload of a request: a
// header in JSON, a body, or both. Neither is nil on the wire; an absent part is
// an empty one.
type frame struct {
	header, body []byte
}

// frameHead is the size of the three numbers before the parts: the length of
// each, and a checksum, which release builds of Dynamo leave 0. It is not looked
// at: TCP has its own.
const frameHead = 24

// firstChunk is how much memory the mere announcement of a length gets.
const firstChunk = 64 << 10

// appendFrame appends the bytes of a frame.
func appendFrame(dst, header, body []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(header)))
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	dst = binary.BigEndian.AppendUint64(dst, 0)
	dst = append(dst, header...)
	return append(dst, body...)
}

// size returns the bytes that a frame takes on the wire.
func (f frame) size() int64 { return frameHead + int64(len(f.header)) + int64(len(f.body)) }

// readFrame reads one frame whose parts are at most that many bytes long. The
// error is io.EOF when there is none, io.ErrUnexpectedEOF when it is cut short.
func readFrame(r io.Reader, maxHeader, maxBody int64) (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	header, body := binary.BigEndian.Uint64(head[:8]), binary.BigEndian.Uint64(head[8:16])
	for _, part := range []struct {
		name  string
		bytes uint64
		limit int64
	}{{"header", header, maxHeader}, {"body", body, maxBody}} {
		if limit := max(part.limit, 0); part.bytes > uint64(limit) {
			return frame{}, fmt.Errorf("frame %s of %d bytes: %w (%d)", part.name, part.bytes, ErrTooLarge, limit)
		}
	}
	var f frame
	var err error
	if f.header, err = readN(r, int(header)); err != nil {
		return frame{}, err
	}
	f.body, err = readN(r, int(body))
	return f, err
}

// readN reads n bytes. Memory grows with what arrives, not with what was
// announced.
func readN(r io.Reader, n int) ([]byte, error) {
	var b []byte
	for len(b) < n {
		have, want := len(b), min(n-len(b), max(firstChunk, len(b)))
		b = slices.Grow(b, want)[:have+want]
		if _, err := io.ReadFull(r, b[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}
