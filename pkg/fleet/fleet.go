package fleet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"unique"
)

// Role is what a worker does for a request.
type Role uint8

// Roles of workers.
const (
	Aggregated Role = iota // prefill and decode
	Prefill                // prefill only; hands its KV blocks to a decode worker
	Decode                 // decode, and prefill when no prefill worker is named
)

// String returns the role's name.
func (r Role) String() string {
	switch r {
	case Aggregated:
		return "Aggregated"
	case Prefill:
		return "Prefill"
	case Decode:
		return "Decode"
	}
	return "Unknown"
}

// Key identifies a worker on the event plane: an engine process and one of its
// data-parallel ranks. Cache and load are per Key.
type Key struct {
	ID   uint64 // Dynamo's worker_id, all 64 bits
	Rank uint32 // data-parallel rank
}

// String returns "id/rank" in decimal.
func (k Key) String() string { return fmt.Sprintf("%d/%d", k.ID, k.Rank) }

// Compare orders keys by id, then rank.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.ID, o.ID), cmp.Compare(k.Rank, o.Rank))
}

// Worker is one engine rank that owns a KV cache.
type Worker struct {
	Key
	Name     string         // pod name, for people; not unique over ranks
	Endpoint netip.AddrPort // where requests for this worker are sent
	Role     Role
	Recovery string // where it answers questions about what it holds, host:port/path (dynamo.md 1.9); empty: nowhere
	Says     Says   // of itself
	Site     Site   // where it runs
}

// Advertised is what a worker says of itself (dynamo.md 3.2). It never decides
// where requests go; it tells a wrong configuration from a right one. Fields that
// the worker is silent about are zero.
type Advertised struct {
	BlockSize int    // tokens in a KV block
	Namespace string // in Dynamo, with the suffix of the roll-out
	Component string // in Dynamo
	Type      string // aggregated, prefill or decode; since Dynamo 1.3
	Subject   string // what the NATS subjects of its KV events start with

	KVBlocks         int64 // KV blocks that one rank has room for
	MaxBatchedTokens int64 // tokens that one rank computes in a step
	MaxRequests      int64 // requests that one rank computes at once
}

// Says is what a worker says of itself, kept once for all that say the same:
// decisions copy workers. The zero value says nothing.
type Says struct{ handle unique.Handle[Advertised] }

// Say returns what a worker says of itself.
func Say(a Advertised) Says {
	if a == (Advertised{}) {
		return Says{}
	}
	return Says{unique.Make(a)}
}

// Advertised returns what the worker says of itself.
func (s Says) Advertised() Advertised {
	if s == (Says{}) {
		return Advertised{}
	}
	return s.handle.Value()
}

// Snapshot is a pool at one moment. It is immutable once built: never change a
// slice of it.
type Snapshot struct {
	Workers []Worker // ordered by Key
	byKey   map[Key]int
	count   [3]int
}

// NewSnapshot builds a snapshot. It returns an error that names both when two
// workers have the same key: events could not be told apart.
func NewSnapshot(workers []Worker) (*Snapshot, error) {
	s := &Snapshot{Workers: slices.Clone(workers), byKey: make(map[Key]int, len(workers))}
	slices.SortFunc(s.Workers, func(a, b Worker) int { return a.Compare(b.Key) })
	for i, w := range s.Workers {
		if j, dup := s.byKey[w.Key]; dup {
			return nil, fmt.Errorf("workers %q and %q have the same id and rank %s", s.Workers[j].Name, w.Name, w.Key)
		}
		if int(w.Role) >= len(s.count) {
			return nil, fmt.Errorf("worker %q: unknown role %d", w.Name, w.Role)
		}
		s.byKey[w.Key] = i
		s.count[w.Role]++
	}
	return s, nil
}

// Index returns the position of a worker in Workers.
func (s *Snapshot) Index(k Key) (int, bool) {
	i, ok := s.byKey[k]
	return i, ok
}

// Count returns the number of workers with a role.
func (s *Snapshot) Count(r Role) int { return s.count[r] }
