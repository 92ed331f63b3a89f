package kvevent

import "github.com/warmpath/warmpath/pkg/block"

// Tier is where a worker keeps a block.
type Tier uint8

// Tiers in the order a lookup prefers them. NumTiers itself, as the tier of an
// event, is an unknown tier: the event counts, and there is nothing to keep.
const (
	Device   Tier = iota // accelerator memory
	Host                 // pinned host memory
	Disk                 // local disk
	External             // a store outside the worker
	NumTiers = 4
)

// String returns the tier's name as Dynamo writes it on the wire.
func (t Tier) String() string {
	switch t {
	case Device:
		return "device"
	case Host:
		return "host_pinned"
	case Disk:
		return "disk"
	case External:
		return "external"
	}
	return "unknown"
}

// Kind is what an event says happened.
type Kind uint8

// Kinds of events.
const (
	Stored  Kind = iota + 1 // Blocks are now held, after Parent
	Removed                 // Gone are no longer held
	Cleared                 // nothing is held any more
)

// String returns the kind's name as Dynamo writes it on the wire.
func (k Kind) String() string {
	switch k {
	case Stored:
		return "stored"
	case Removed:
		return "removed"
	case Cleared:
		return "cleared"
	}
	return "unknown"
}

// EngineHash is the engine's own id of a block. It is opaque, and comparable
// only between events of one worker.
type EngineHash uint64

// Block is one block of a Stored event.
type Block struct {
	Engine EngineHash
	Hash   block.Hash
}

// Media is one multimodal object in one block of a Stored event.
type Media struct {
	Block   int         // position in Event.Blocks
	Hash    uint64      // Dynamo's mm_hash
	Offsets [][2]uint32 // token ranges [start, end) inside the prompt
}

// Event is one change to one worker's cache. Slices are owned by whoever
// decoded the event and are valid only until the next decode.
type Event struct {
	WorkerID uint64 // full 64 bits
	Rank     uint32 // data-parallel rank
	ID       uint64 // counts 1, 2, 3, … per (WorkerID, Rank); a jump is loss, a step back a restart; 0 of engines' own events, which have none
	Tier     Tier   // NumTiers: a tier that is not known
	Kind     Kind

	// Of Stored: the block that Blocks[0] follows (HasParent), or none, which
	// means the start of a prompt; and, on lower tiers of newer workers, the
	// absolute index of Blocks[0] (HasStart).
	Parent    EngineHash
	HasParent bool
	Start     uint32
	HasStart  bool
	Blocks    []Block

	// Of Removed.
	Gone []EngineHash

	// Copies says that every copy of a block is stored and removed on its own, as
	// engines tell it (engines.md 1.1): a block is there until its last copy is
	// removed. It is false of Dynamo's workers, which count copies themselves and
	// tell only of the last removal (dynamo.md 1.4).
	Copies bool

	// Media lists the multimodal objects that touch Blocks. Their hashes are
	// already folded into Block.Hash; they are kept for people and tests.
	Media []Media

	// Residency says whose memory the blocks are in: "worker", "cache_owner" or
	// another word of newer Dynamo releases (1.5+); empty when not stated.
	Residency string

	// Of Cleared: true when it drops every rank of the worker (component-scope
	// subjects, Dynamo up to 1.3), false when only this rank (1.4+).
	AllRanks bool
}
