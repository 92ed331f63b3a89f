package vllm

import (
	"encoding/hex"
	"slices"
	"unsafe"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// store hashes the blocks of a stored event. It is false, and the event counted,
// when the event is none to keep; with an error when it is no event at all.
func (d *Decoder) store() (ok bool, err error) {
	e := &d.fields
	switch {
	case !e.hasSize:
		return false, errNoSize
	case e.size == 0 && len(d.tokens) == 0:
		d.stats.Placeholders++
		return false, nil
	case !e.hasTokens:
		return false, errNoTokens
	case len(d.engine) == 0:
		return false, errNoHashes
	case d.event.HasParent && slices.Contains(d.engine, d.event.Parent):
		return false, errOwn
	case e.size != uint64(d.cfg.BlockSize):
		d.stats.OtherSizes++
		d.lastSize = e.size
		return false, nil
	case uint64(len(d.tokens)) != uint64(len(d.engine))*e.size:
		d.stats.OddSpans++
		return false, nil
	}
	seed := block.NewSeed(view(e.adapter), view(e.salt))
	d.hashes = d.layout.AppendHashes(d.hashes[:0], d.tokens, seed)
	firstMedia := len(d.media)
	if e.keys != nil {
		if err := d.readKeys(e.keys, seed); err != nil {
			d.media = d.media[:firstMedia]
			return false, msgpack.FieldError(eventFields, eventKeys, err)
		}
	}
	first := len(d.blocks)
	for i, h := range d.hashes {
		d.blocks = append(d.blocks, kvevent.Block{Engine: d.engine[i], Hash: h})
	}
	d.event.Blocks = d.blocks[first:len(d.blocks):len(d.blocks)]
	if len(d.media) > firstMedia {
		d.event.Media = d.media[firstMedia:len(d.media):len(d.media)]
	}
	return true, nil
}

// view is the string of bytes that outlive it: those of the message being read.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// readKeys reads the extra keys of a stored event: a list per block, or nil. Those
// that name a multimodal object enter the block's hash (dynamo.md 2.1), which is
// then made anew. All others are counted, but for the adapter and the salt, which
// engines repeat here.
func (d *Decoder) readKeys(b []byte, seed block.Seed) error {
	n, b, err := msgpack.ReadArray(b)
	if err != nil {
		return err
	}
	for i := range int(n) {
		if msgp.IsNil(b) {
			b = b[1:]
			continue
		}
		if b, err = d.readBlockKeys(b); err != nil {
			return err
		}
		if i >= len(d.hashes) {
			d.stats.IgnoredKeys += uint64(len(d.keys)) // of no block
			continue
		}
		if len(d.keys) == 0 {
			continue
		}
		for _, h := range d.keys {
			d.media = append(d.media, kvevent.Media{Block: i, Hash: h})
		}
		d.hashes[i] = d.hashWithMedia(i, seed)
	}
	return nil
}

// readBlockKeys reads the extra keys of one block: hashes of multimodal objects
// into d.keys. Each key is a bare value, or a pair of an identifier and where the
// object starts.
func (d *Decoder) readBlockKeys(b []byte) ([]byte, error) {
	d.keys = d.keys[:0]
	n, b, err := msgpack.ReadArray(b)
	if err != nil {
		return nil, err
	}
	for range n {
		at := b
		if b, err = msgpack.Skip(b); err != nil {
			return nil, err
		}
		if msgp.NextType(at) == msgp.ArrayType {
			var parts uint32
			if parts, at, err = msgpack.ReadArray(at); err != nil || parts == 0 {
				d.stats.IgnoredKeys++
				continue
			}
		}
		word, _, err := msgpack.ReadWord(at)
		if err != nil {
			d.stats.IgnoredKeys++
			continue
		}
		if h, ok := mediaHash(word); ok {
			d.keys = append(d.keys, h)
		} else if string(word) != string(d.fields.adapter) && string(word) != string(d.fields.salt) {
			d.stats.IgnoredKeys++
		}
	}
	return b, nil
}

// mediaZeros is how the identifier of a multimodal object ends that Dynamo 1.5+
// takes for one: 16 hex digits, which are its hash, and 48 zeros (dynamo.md 2.1).
const mediaZeros = "000000000000000000000000000000000000000000000000"

// mediaHash returns the hash that an identifier stands for.
func mediaHash(id []byte) (h uint64, ok bool) {
	if len(id) != 16+len(mediaZeros) || string(id[16:]) != mediaZeros {
		return 0, false
	}
	var raw [8]byte
	if _, err := hex.Decode(raw[:], id[:16]); err != nil {
		return 0, false
	}
	for _, c := range raw {
		h = h<<8 | uint64(c)
	}
	return h, true
}

// hashWithMedia is block.HashWithMedia of the i-th block and d.keys, without
// copies of its own: as tokens of a longer block, two for each object.
func (d *Decoder) hashWithMedia(i int, seed block.Seed) block.Hash {
	slices.Sort(d.keys)
	d.window = append(d.window[:0], d.tokens[i*d.layout.Size:(i+1)*d.layout.Size]...)
	for _, h := range d.keys {
		d.window = append(d.window, uint32(h), uint32(h>>32))
	}
	var one [1]block.Hash
	return block.Layout{Size: len(d.window)}.AppendHashes(one[:0], d.window, seed)[0]
}
