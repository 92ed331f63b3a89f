package recovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Codec is the encoding of a request's body. The answer comes in the same one.
type Codec uint8

// Codecs. Workers of Dynamo 1.2 and 1.3 know only JSON; from 1.4 on msgpack is
// the default, and JSON is understood (dynamo-live.md section 3).
const (
	JSON Codec = iota + 1
	Msgpack
)

// String returns the codec's name as Dynamo's discovery writes it.
func (c Codec) String() string {
	switch c {
	case JSON:
		return "json"
	case Msgpack:
		return "msgpack"
	}
	return "unknown"
}

// oldEndpoint is how the endpoint's name starts up to Dynamo 1.3; the rank
// follows. From 1.4 on it is worker_kv_query_source_<publisher id in hex>.
const oldEndpoint = "worker_kv_indexer_query_dp"

// maxPath bounds a path, which has some 80 bytes. It is written twice, the second
// time as JSON, and both lengths have 16 bits on the wire.
const maxPath = 4 << 10

// Target is where a worker rank answers queries.
type Target struct {
	Address string // host:port to dial
	Path    string // endpoint at that address: <instance id in hex>/…/<endpoint>
	Codec   Codec
}

// endpoint returns the last part of the path.
func (t Target) endpoint() string { return t.Path[strings.LastIndexByte(t.Path, '/')+1:] }

// old says whether the target is of Dynamo 1.2 or 1.3: its requests have fewer
// fields, and what it calls cleared is all ranks of the worker.
func (t Target) old() bool { return strings.HasPrefix(t.endpoint(), oldEndpoint) }

// Validate says what is wrong with a target that was not made by this package.
func (t Target) Validate() error {
	if t.Codec != JSON && t.Codec != Msgpack {
		return errors.New("target: no codec")
	}
	return checkAddress(t.Address, t.Path)
}

func checkAddress(address, path string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("target: address %.128q is not host:port", address)
	}
	if path == "" || len(path) > maxPath || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("target: path %.128q of %d bytes cannot be asked for", path, len(path))
	}
	return nil
}

// Source is a target together with the worker rank whose events it knows.
type Source struct {
	Target

	WorkerID    uint64
	Rank        uint32
	PublisherID uint64 // of the rank's events; zero up to Dynamo 1.3, whose discovery does not tell
}

// discovered is what we read of an object in Dynamo's discovery: an endpoint, an
// event source (1.4+), or a transport alone.
type discovered struct {
	TCP string `json:"tcp"`

	Transport  *discovered `json:"transport"`
	Codec      string      `json:"request_plane_codec"`
	InstanceID *uint64     `json:"instance_id"`

	Metadata *struct {
		Worker *struct {
			ID   *uint64 `json:"worker_id"`
			Rank uint32  `json:"dp_rank"`
		} `json:"worker"`
		PublisherID    uint64      `json:"publisher_id"`
		RecoveryTarget *discovered `json:"recovery_target"`
	} `json:"metadata"`
}

// ErrNoTarget is the error of a discovery object that names no TCP endpoint to
// ask: the worker has no local indexer, or its request plane is not TCP.
var ErrNoTarget = errors.New("discovery names no recovery endpoint over tcp: " +
	"the worker runs without a local indexer, or with another request plane")

// ParseTransport reads where to ask from a discovery object: the endpoint that
// Dynamo 1.2 and 1.3 register, the event source that newer ones do, or the
// transport of either alone: {"tcp":"host:port/path"}.
func ParseTransport(object []byte) (Target, error) {
	d, err := parseDiscovered(object)
	if err != nil {
		return Target{}, err
	}
	return d.target()
}

// ParseSource reads where to ask and about which worker rank. A transport alone
// does not tell the worker and is an error; so is an endpoint that is not for
// queries.
func ParseSource(object []byte) (Source, error) {
	d, err := parseDiscovered(object)
	if err != nil {
		return Source{}, err
	}
	target, err := d.target()
	if err != nil {
		return Source{}, err
	}
	if m := d.Metadata; m != nil {
		if m.Worker == nil || m.Worker.ID == nil {
			return Source{}, errors.New("discovery object: the event source names no worker")
		}
		return Source{Target: target, WorkerID: *m.Worker.ID, Rank: m.Worker.Rank, PublisherID: m.PublisherID}, nil
	}
	if d.InstanceID == nil {
		return Source{}, errors.New("discovery object: no instance_id")
	}
	rank, err := target.oldRank()
	if err != nil {
		return Source{}, err
	}
	return Source{Target: target, WorkerID: *d.InstanceID, Rank: rank}, nil
}

// oldRank returns the rank that the endpoint's name tells.
func (t Target) oldRank() (uint32, error) {
	digits, found := strings.CutPrefix(t.endpoint(), oldEndpoint)
	rank, err := strconv.ParseUint(digits, 10, 32)
	if !found || err != nil {
		return 0, fmt.Errorf("endpoint %.128q names no rank: want %s<rank>", t.endpoint(), oldEndpoint)
	}
	return uint32(rank), nil
}

func parseDiscovered(object []byte) (*discovered, error) {
	d := &discovered{}
	if err := json.Unmarshal(object, d); err != nil {
		return nil, fmt.Errorf("discovery object: %w", err)
	}
	return d, nil
}

// target finds the transport, which is at most two objects deep.
func (d *discovered) target() (Target, error) {
	if d.Metadata != nil {
		if d = d.Metadata.RecoveryTarget; d == nil {
			return Target{}, ErrNoTarget
		}
	}
	word := d.Codec
	if d.Transport != nil {
		d = d.Transport
	}
	if d.TCP == "" {
		return Target{}, ErrNoTarget
	}
	address, path, _ := strings.Cut(d.TCP, "/")
	if err := checkAddress(address, path); err != nil {
		return Target{}, err
	}
	t := Target{Address: address, Path: path}
	switch {
	case word == Msgpack.String(), word == "" && !t.old():
		t.Codec = Msgpack
	case word == JSON.String(), word == "":
		t.Codec = JSON
	default:
		return Target{}, fmt.Errorf("discovery object: request_plane_codec %.64q is not known: want json or msgpack", word)
	}
	return t, nil
}
