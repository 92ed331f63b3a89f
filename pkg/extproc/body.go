package extproc

import (
	"sync"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// body collects a request body. The first chunk is kept as it came; only a
// second one makes a copy, into pooled memory.
type body struct {
	data []byte
	room *[]byte // what data lies in, nil while it is the first chunk
	lent bool    // someone else may still read data: the pool must not have it
}

// rooms is the memory of collected bodies. It is not cleared between uses: a
// body is always read up to its own length.
var rooms = sync.Pool{New: func() any { return new([]byte) }}

// maxRoom bounds what the pool keeps: a rare giant body must not pin its memory.
const maxRoom = 1 << 20

func (b *body) add(chunk []byte) {
	switch {
	case len(chunk) == 0:
	case len(b.data) == 0:
		b.data = chunk
	case b.room == nil:
		b.room = rooms.Get().(*[]byte)
		b.data = append(append((*b.room)[:0], b.data...), chunk...)
	default:
		b.data = append(b.data, chunk...)
	}
}

// replace puts other bytes, which fill appends, in the place of the body.
func (b *body) replace(fill func(dst []byte) []byte) {
	room := rooms.Get().(*[]byte)
	data := fill((*room)[:0])
	b.free()
	b.data, b.room = data, room
}

func (b *body) len() int { return len(b.data) }

// bytes returns the whole body, never nil.
func (b *body) bytes() []byte {
	if b.data == nil {
		return []byte{}
	}
	return b.data
}

// free gives the memory back. Nothing may use what bytes returned any more.
func (b *body) free() {
	if b.room != nil && !b.lent && cap(b.data) <= maxRoom {
		*b.room = b.data
		rooms.Put(b.room)
	}
	*b = body{}
}

type side uint8

const (
	requestSide side = iota
	responseSide
)

// chunkMessages are the nested messages that carry a chunk, made once a stream.
type chunkMessages struct {
	made     bool
	request  extprocv3.ProcessingResponse_RequestBody
	response extprocv3.ProcessingResponse_ResponseBody
	body     extprocv3.BodyResponse
	common   extprocv3.CommonResponse
	mutation extprocv3.BodyMutation
	streamed extprocv3.BodyMutation_StreamedResponse
	payload  extprocv3.StreamedBodyResponse
}

func (c *chunkMessages) make() {
	c.made = true
	c.streamed.StreamedResponse = &c.payload
	c.mutation.Mutation = &c.streamed
	c.common.BodyMutation = &c.mutation
	c.body.Response = &c.common
	c.request.RequestBody = &c.body
	c.response.ResponseBody = &c.body
}

// echo sends body bytes back unchanged, in chunks that every gateway takes. An
// empty body that ends the stream is one empty chunk; an empty one that does
// not end it is acknowledged all the same.
func (st *stream) echo(data []byte, last bool, where side) error {
	if !st.chunk.made {
		st.chunk.make()
	}
	if where == requestSide {
		st.out.Response = &st.chunk.request
	} else {
		st.out.Response = &st.chunk.response
	}
	for {
		n := min(len(data), maxChunk)
		st.chunk.payload.Body = data[:n]
		data = data[n:]
		st.chunk.payload.EndOfStream = last && len(data) == 0
		if err := st.send(&st.out); err != nil {
			return err
		}
		if len(data) == 0 {
			st.chunk.payload.Body = nil
			return nil
		}
	}
}
