package dynamo

import (
	"encoding/binary"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// readStored reads a stored change.
func (d *Decoder) readStored(b []byte) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	e := &d.event
	hasBlocks := false
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, storedFields); err != nil {
			return nil, err
		}
		if !l.Keyed && i == storedStart && msgp.NextType(b) == msgp.ArrayType {
			f = storedBlocks // positional, from before start_position
		}
		switch f {
		case storedParent:
			e.Parent, e.HasParent = 0, !msgp.IsNil(b)
			if e.HasParent {
				var h uint64
				h, b, err = msgpack.ReadHash(b)
				e.Parent = kvevent.EngineHash(h)
			} else {
				b = b[1:]
			}
		case storedStart:
			e.Start, e.HasStart = 0, !msgp.IsNil(b)
			if e.HasStart {
				e.Start, b, err = msgpack.ReadUint32(b)
			} else {
				b = b[1:]
			}
		case storedBlocks:
			b, err = d.readBlocks(b)
			hasBlocks = true
		default:
			d.stats.UnknownFields++
			b, err = msgpack.Skip(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(storedFields, f, err)
		}
	}
	if !hasBlocks {
		return nil, errNoBlocks
	}
	return b, nil
}

// readBlocks reads the blocks of a stored change.
func (d *Decoder) readBlocks(b []byte) ([]byte, error) {
	d.blocks, d.media, d.offsets = d.blocks[:0], d.media[:0], d.offsets[:0]
	n, b, err := msgpack.ReadArray(b)
	if err != nil {
		return nil, err
	}
	for i := range n {
		if blk, ok := canonicalBlock(b); ok {
			d.blocks = append(d.blocks, blk)
			b = b[canonicalSize:]
			continue
		}
		if b, err = d.readBlock(b); err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
	}
	return b, nil
}

// The bytes around the two hashes of a block without media, as every release
// writes it when the hashes need 64 bits.
const (
	beforeEngine = "\x83\xaablock_hash\xcf"
	beforeTokens = "\xabtokens_hash\xcf"
	afterTokens  = "\xadmm_extra_info\xc0"

	engineAt      = len(beforeEngine)
	tokensAt      = engineAt + 8 + len(beforeTokens)
	canonicalSize = tokensAt + 8 + len(afterTokens)
)

// canonicalBlock reads a block at a glance: most of a message is such blocks.
func canonicalBlock(b []byte) (blk kvevent.Block, ok bool) {
	if len(b) < canonicalSize || string(b[:engineAt]) != beforeEngine ||
		string(b[engineAt+8:tokensAt]) != beforeTokens || string(b[tokensAt+8:canonicalSize]) != afterTokens {
		return kvevent.Block{}, false
	}
	return kvevent.Block{
		Engine: kvevent.EngineHash(binary.BigEndian.Uint64(b[engineAt:])),
		Hash:   block.Hash(binary.BigEndian.Uint64(b[tokensAt:])),
	}, true
}

// readBlock reads one block of a stored change.
func (d *Decoder) readBlock(b []byte) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	var engine, tokens uint64
	var hasEngine, hasTokens bool
	firstMedia := len(d.media)
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, blockFields); err != nil {
			return nil, err
		}
		switch f {
		case blockEngine:
			engine, b, err = msgpack.ReadHash(b)
			hasEngine = true
		case blockTokens:
			tokens, b, err = msgpack.ReadHash(b)
			hasTokens = true
		case blockMedia:
			d.media = d.media[:firstMedia]
			if msgp.IsNil(b) {
				b = b[1:]
			} else {
				b, err = d.readMedia(b)
			}
		default:
			d.stats.UnknownFields++
			b, err = msgpack.Skip(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(blockFields, f, err)
		}
	}
	if !hasEngine || !hasTokens {
		return nil, errNoHash
	}
	d.blocks = append(d.blocks, kvevent.Block{Engine: kvevent.EngineHash(engine), Hash: block.Hash(tokens)})
	return b, nil
}

// readMedia reads the multimodal objects of the block being read.
func (d *Decoder) readMedia(b []byte) ([]byte, error) {
	firstMedia := len(d.media)
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, mediaFields); err != nil {
			return nil, err
		}
		if f < 0 {
			d.stats.UnknownFields++
			if b, err = msgpack.Skip(b); err != nil {
				return nil, err
			}
			continue
		}
		d.media = d.media[:firstMedia]
		var n uint32
		if n, b, err = msgpack.ReadArray(b); err != nil {
			return nil, msgpack.FieldError(mediaFields, f, err)
		}
		for range n {
			if b, err = d.readObject(b); err != nil {
				return nil, msgpack.FieldError(mediaFields, f, err)
			}
		}
	}
	return b, nil
}

// readObject reads one multimodal object of the block being read.
func (d *Decoder) readObject(b []byte) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	m := kvevent.Media{Block: len(d.blocks)}
	hasHash := false
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, objectFields); err != nil {
			return nil, err
		}
		switch f {
		case objectHash:
			m.Hash, b, err = msgpack.ReadHash(b)
			hasHash = true
		case objectOffsets:
			m.Offsets, b, err = d.readOffsets(b)
		default:
			d.stats.UnknownFields++
			b, err = msgpack.Skip(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(objectFields, f, err)
		}
	}
	if !hasHash {
		return nil, errNoMMHash
	}
	d.media = append(d.media, m)
	return b, nil
}

// readOffsets reads the token ranges of a multimodal object. All ranges of an
// event share one buffer.
func (d *Decoder) readOffsets(b []byte) ([][2]uint32, []byte, error) {
	n, b, err := msgpack.ReadArray(b)
	if err != nil {
		return nil, nil, err
	}
	first := len(d.offsets)
	for range n {
		var pair [2]uint32
		var two uint32
		if two, b, err = msgpack.ReadArray(b); err != nil {
			return nil, nil, err
		}
		if two != 2 {
			return nil, nil, errOffsets
		}
		for i := range pair {
			if pair[i], b, err = msgpack.ReadUint32(b); err != nil {
				return nil, nil, err
			}
		}
		d.offsets = append(d.offsets, pair)
	}
	if n == 0 {
		return nil, b, nil
	}
	return d.offsets[first:len(d.offsets):len(d.offsets)], b, nil
}

// readRemoved reads a removed change.
func (d *Decoder) readRemoved(b []byte) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	hasHashes := false
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, removedFields); err != nil {
			return nil, err
		}
		if f < 0 {
			d.stats.UnknownFields++
			if b, err = msgpack.Skip(b); err != nil {
				return nil, err
			}
			continue
		}
		hasHashes = true
		d.gone = d.gone[:0]
		var n uint32
		if n, b, err = msgpack.ReadArray(b); err != nil {
			return nil, msgpack.FieldError(removedFields, f, err)
		}
		for range n {
			var h uint64
			if h, b, err = msgpack.ReadHash(b); err != nil {
				return nil, msgpack.FieldError(removedFields, f, err)
			}
			d.gone = append(d.gone, kvevent.EngineHash(h))
		}
	}
	if !hasHashes {
		return nil, errNoHashes
	}
	return b, nil
}
