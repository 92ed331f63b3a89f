package jinja

import "math"

func floatBits(f float64) uint64 { return math.Float64bits(f) }
func floatFrom(n uint64) float64 { return math.Float64frombits(n) }

// Entry is a key of a [Dict] with its value.
type Entry struct {
	Key, Val Value
}

// Dict is a mapping that keeps the order in which keys came. The zero Dict is
// empty and ready.
type Dict struct {
	entries []Entry
	index   map[string]int // of text keys, once there are many
}

// many is the number of entries from which on a Dict has an index.
const many = 16

// NewDict returns an empty dict with room for entries, which it takes over.
func NewDict(room []Entry) *Dict { return &Dict{entries: room[:0]} }

// Reset empties d and gives it room for entries, which it takes over.
func (d *Dict) Reset(room []Entry) { *d = Dict{entries: room[:0]} }

// Len returns the number of entries.
func (d *Dict) Len() int { return len(d.entries) }

// Entries returns the entries in order. They belong to d.
func (d *Dict) Entries() []Entry { return d.entries }

// Get returns the value of a text key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.find(key); i >= 0 {
		return d.entries[i].Val, true
	}
	return Undefined, false
}

func (d *Dict) find(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		if k := &d.entries[i].Key; k.kind == KindString && k.str() == key {
			return i
		}
	}
	return -1
}

// Set sets the value of a text key. A key that is there keeps its place.
func (d *Dict) Set(key string, val Value) {
	if i := d.find(key); i >= 0 {
		d.entries[i].Val = val
		return
	}
	d.add(String(key), val)
}

func (d *Dict) add(key, val Value) {
	d.entries = append(d.entries, Entry{key, val})
	switch {
	case key.kind != KindString:
	case d.index != nil:
		d.index[key.str()] = len(d.entries) - 1
	case len(d.entries) > many:
		d.index = make(map[string]int, 2*len(d.entries))
		for i, e := range d.entries {
			if e.Key.kind == KindString {
				d.index[e.Key.str()] = i
			}
		}
	}
}

// lookup is Python's d[key]. A key that cannot be hashed is not found: ok is
// false, and bad says so.
func (d *Dict) lookup(key Value) (_ Value, ok, bad bool) {
	if key.kind == KindString {
		v, ok := d.Get(key.str())
		return v, ok, false
	}
	if !hashable(key, maxNesting) {
		return Undefined, false, true
	}
	for i := range d.entries {
		if same, _ := equal(d.entries[i].Key, key, maxNesting); same {
			return d.entries[i].Val, true, false
		}
	}
	return Undefined, false, false
}

// put is Python's d[key] = val.
func (d *Dict) put(key, val Value) {
	if key.kind == KindString {
		d.Set(key.str(), val)
		return
	}
	for i := range d.entries {
		if same, _ := equal(d.entries[i].Key, key, maxNesting); same {
			d.entries[i].Val = val
			return
		}
	}
	d.add(key, val)
}
