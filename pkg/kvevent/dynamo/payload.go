package dynamo

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent"
	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// readPayload reads a payload of any form and applies its events.
func (d *Decoder) readPayload(b []byte, scope Scope, apply func(*kvevent.Event)) error {
	if len(b) == 0 {
		return msgpack.ErrShort
	}
	var err error
	switch msgp.NextType(b) {
	case msgp.MapType:
		b, err = d.readElement(b, scope, apply)
	case msgp.ArrayType:
		b, err = d.readBatch(b, scope, apply)
	default:
		err = msgpack.ErrShape
	}
	if err == nil && len(b) > 0 {
		err = errLeftovers
	}
	return err
}

// readBatch reads an array of events, or one event in the old positional form.
// That form starts with the worker id, an integer, where a batch has an event.
// When it turns out to be no event either, its parts are tried one by one: a
// good event may still be among them.
func (d *Decoder) readBatch(b []byte, scope Scope, apply func(*kvevent.Event)) ([]byte, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, msgpack.Short(err)
	}
	if t := msgp.NextType(rest); n > 0 && (t == msgp.UintType || t == msgp.IntType) {
		if after, err := d.readRouterEvent(b); err == nil {
			d.emit(scope, apply)
			return after, nil
		}
	}
	for i := range n {
		if rest, err = d.readElement(rest, scope, apply); err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, n, err)
		}
	}
	return rest, nil
}

// readElement reads the value in an event's place. It returns an error only when
// the value is not whole msgpack, so that what follows cannot be found.
func (d *Decoder) readElement(b []byte, scope Scope, apply func(*kvevent.Event)) ([]byte, error) {
	rest, err := d.readRouterEvent(b)
	if err == nil {
		d.emit(scope, apply)
		return rest, nil
	}
	rest, skipErr := msgpack.Skip(b)
	if skipErr != nil {
		return nil, skipErr
	}
	d.stats.BadEvents++
	d.lastSkip = err
	return rest, nil
}

// emit hands the event just read to apply.
func (d *Decoder) emit(scope Scope, apply func(*kvevent.Event)) {
	e := &d.event
	if e.Tier >= kvevent.NumTiers {
		d.stats.UnknownTiers++
	}
	e.AllRanks = e.Kind == kvevent.Cleared && (scope == ComponentScope || scope == StreamScope)
	if len(d.blocks) > 0 {
		e.Blocks = d.blocks
	}
	if len(d.gone) > 0 {
		e.Gone = d.gone
	}
	if len(d.media) > 0 {
		e.Media = d.media
	}
	d.stats.Events++
	if e.Kind == kvevent.Stored && len(e.Blocks) == 0 {
		d.stats.EmptyStores++
	}
	apply(e)
}
