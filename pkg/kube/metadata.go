package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/warmpath/warmpath/pkg/fleet"
)

const (
	maxRanks     = 1024    // as in a list of workers
	maxBlockSize = 1 << 16 // as in spec.blockSize
	maxStartRank = 1 << 20

	// Names of the endpoint that answers recovery questions (dynamo-live.md 1): up
	// to Dynamo 1.3 with the rank behind it, from 1.4 on with a publisher's id.
	rankQuery   = "worker_kv_indexer_query_dp"
	sourceQuery = "worker_kv_query_source_"

	eventsTopic = "kv-events"
)

// said is what a worker wrote about itself in its DynamoWorkerMetadata. It is
// immutable once read.
type said struct {
	fleet.Advertised

	ids       []uint64          // worker ids that it publishes under
	startRank uint32            // its first data-parallel rank
	ranks     int               // number of them; 0: it does not say
	recovery  map[uint32]string // host:port/path by rank
	zmq       bool              // its events go out over ZMQ, and not over NATS
	faults    []string          // what could not be read
}

// The shapes of spec.data, as far as they are used (dynamo.md 3.2). Entries are
// read one by one, so that an odd one costs no more than itself.
type (
	wireData struct {
		Endpoints map[string]json.RawMessage `json:"endpoints"`
		Cards     map[string]json.RawMessage `json:"model_cards"`
		Channels  map[string]json.RawMessage `json:"event_channels"`
		Sources   map[string]json.RawMessage `json:"event_sources"`
	}
	wireEndpoint struct {
		Namespace string  `json:"namespace"`
		Component string  `json:"component"`
		Endpoint  string  `json:"endpoint"`
		ID        *uint64 `json:"instance_id"`
		Transport struct {
			TCP string `json:"tcp"`
		} `json:"transport"`
	}
	wireCard struct {
		Namespace string  `json:"namespace"`
		Component string  `json:"component"`
		ID        *uint64 `json:"instance_id"`
		Card      struct {
			BlockSize int             `json:"kv_cache_block_size"`
			Type      string          `json:"worker_type"`
			Runtime   json.RawMessage `json:"runtime_config"`
		} `json:"card_json"`
	}
	wireRuntime struct {
		KVBlocks         int64 `json:"total_kv_blocks"`
		MaxRequests      int64 `json:"max_num_seqs"`
		MaxBatchedTokens int64 `json:"max_num_batched_tokens"`
		Ranks            int64 `json:"data_parallel_size"`
		StartRank        int64 `json:"data_parallel_start_rank"`
	}
	wireChannel struct {
		Topic     string `json:"topic"`
		Transport struct {
			Kind   string `json:"kind"`
			Config struct {
				Prefix string `json:"subject_prefix"`
			} `json:"config"`
		} `json:"transport"`
	}
	wireSource struct {
		Topic    string `json:"topic"`
		Metadata struct {
			Worker struct {
				Rank uint32 `json:"dp_rank"`
			} `json:"worker"`
			Target wireEndpoint `json:"recovery_target"`
		} `json:"metadata"`
	}
)

// readMetadata reads the spec of a DynamoWorkerMetadata. What is odd in it is left
// out and named in faults.
func readMetadata(spec []byte) *said {
	s := &said{recovery: map[uint32]string{}}
	var outer struct {
		Data wireData `json:"data"`
	}
	if len(spec) == 0 {
		return s
	}
	if err := json.Unmarshal(spec, &outer); err != nil {
		s.fault("spec.data", err)
		return s
	}
	s.readCards(outer.Data.Cards)
	s.readEndpoints(outer.Data.Endpoints)
	s.readSources(outer.Data.Sources)
	s.readChannels(outer.Data.Channels)
	slices.Sort(s.ids)
	s.ids = slices.Compact(s.ids)
	return s
}

func (s *said) fault(field string, err error) {
	const enough = 3
	if len(s.faults) < enough {
		s.faults = append(s.faults, fmt.Sprintf("%.128s: %.128s", field, err.Error()))
	}
}

// each decodes the entries of a map, in the order of their keys.
func each[T any](s *said, field string, entries map[string]json.RawMessage, use func(key string, entry *T)) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		var entry T
		if err := json.Unmarshal(entries[key], &entry); err != nil {
			s.fault(field+"["+key+"]", err)
			continue
		}
		use(key, &entry)
	}
}

// readCards reads the model cards. A worker has one for each model and adapter,
// which agree on what is read here: the first that says it counts.
func (s *said) readCards(cards map[string]json.RawMessage) {
	each(s, "model_cards", cards, func(key string, c *wireCard) {
		s.place(c.Namespace, c.Component, c.ID)
		if s.Type == "" {
			s.Type = strings.ToLower(c.Card.Type)
		}
		if size := c.Card.BlockSize; size < 0 || size > maxBlockSize {
			s.fault("model_cards["+key+"]", fmt.Errorf("kv_cache_block_size %d is no block size", size))
		} else if s.BlockSize == 0 {
			s.BlockSize = size
		}
		if len(c.Card.Runtime) > 0 {
			s.readRuntime(key, c.Card.Runtime)
		}
	})
}

func (s *said) readRuntime(key string, data []byte) {
	field := "model_cards[" + key + "].runtime_config"
	var r wireRuntime
	if err := json.Unmarshal(data, &r); err != nil {
		s.fault(field, err)
		return
	}
	switch {
	case r.Ranks < 0 || r.Ranks > maxRanks || r.StartRank < 0 || r.StartRank > maxStartRank:
		s.fault(field, fmt.Errorf("%d data-parallel ranks from %d on cannot be", r.Ranks, r.StartRank))
	case s.ranks == 0:
		s.ranks, s.startRank = int(r.Ranks), uint32(r.StartRank)
	}
	if r.KVBlocks < 0 || r.MaxRequests < 0 || r.MaxBatchedTokens < 0 {
		s.fault(field, errors.New("a capacity is below 0"))
		return
	}
	if s.KVBlocks == 0 {
		s.KVBlocks, s.MaxRequests, s.MaxBatchedTokens = r.KVBlocks, r.MaxRequests, r.MaxBatchedTokens
	}
}

// place takes where in Dynamo the worker is. The namespace alone, which what
// belongs to no component has, does not count.
func (s *said) place(namespace, component string, id *uint64) {
	if component != "" && s.Component == "" {
		s.Namespace, s.Component = namespace, component
	}
	if id != nil {
		s.ids = append(s.ids, *id)
	}
}

// readEndpoints finds where recovery questions go, up to Dynamo 1.3. Later ones
// say it in event_sources; where that is missing, one endpoint of one rank needs no
// telling apart.
func (s *said) readEndpoints(endpoints map[string]json.RawMessage) {
	var unnamed []string
	each(s, "endpoints", endpoints, func(key string, e *wireEndpoint) {
		s.place(e.Namespace, e.Component, e.ID)
		if strings.HasPrefix(e.Endpoint, sourceQuery) && e.Transport.TCP != "" {
			unnamed = append(unnamed, e.Transport.TCP)
		}
		digits, ok := strings.CutPrefix(e.Endpoint, rankQuery)
		if !ok || e.Transport.TCP == "" {
			return
		}
		rank, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			s.fault("endpoints["+key+"]", fmt.Errorf("%.64q names no rank", e.Endpoint))
			return
		}
		s.recover("endpoints["+key+"]", uint32(rank), e.Transport.TCP)
	})
	if len(unnamed) == 1 && s.ranks <= 1 {
		s.recover("endpoints", s.startRank, unnamed[0])
	}
}

// readSources finds where recovery questions go, since Dynamo 1.4.
func (s *said) readSources(sources map[string]json.RawMessage) {
	each(s, "event_sources", sources, func(key string, e *wireSource) {
		if e.Topic == eventsTopic && e.Metadata.Target.Transport.TCP != "" {
			s.recover("event_sources["+key+"]", e.Metadata.Worker.Rank, e.Metadata.Target.Transport.TCP)
		}
	})
}

func (s *said) recover(field string, rank uint32, endpoint string) {
	if err := checkRecovery(endpoint); err != nil {
		s.fault(field, err)
		return
	}
	s.recovery[rank] = endpoint
}

// maxRecovery is far above any endpoint that Dynamo writes, some 100 bytes.
const maxRecovery = 4 << 10

// checkRecovery checks the form host:port/path.
func checkRecovery(endpoint string) error {
	address, path, _ := strings.Cut(endpoint, "/")
	host, port, err := net.SplitHostPort(address)
	odd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" ||
		path == "" || len(endpoint) > maxRecovery || strings.ContainsFunc(endpoint, odd) {
		return fmt.Errorf("tcp: %.128q is not host:port/path", endpoint)
	}
	return nil
}

// readChannels finds where the KV events go.
func (s *said) readChannels(channels map[string]json.RawMessage) {
	each(s, "event_channels", channels, func(_ string, c *wireChannel) {
		switch {
		case c.Topic != eventsTopic:
		case strings.EqualFold(c.Transport.Kind, "zmq"):
			s.zmq = true
		case s.Subject == "":
			s.Subject = c.Transport.Config.Prefix
		}
	})
	s.zmq = s.zmq && s.Subject == ""
}
