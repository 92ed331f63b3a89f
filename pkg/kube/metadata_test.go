package kube

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// recorded reads the DynamoWorkerMetadata that real workers of a version applied.
func recorded(t *testing.T, version string) map[string]*workerMetadata {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "captures", "dynamo", version+"-kubernetes.run.json"))
	if err != nil {
		t.Fatal(err)
	}
	var run struct {
		Discovery []*workerMetadata `json:"discovery"`
	}
	if err := json.Unmarshal(data, &run); err != nil {
		t.Fatal(err)
	}
	all := map[string]*workerMetadata{}
	for _, m := range run.Discovery {
		trimmed, err := trimMetadata(m)
		if err != nil {
			t.Fatal(err)
		}
		all[m.Name] = trimmed.(*workerMetadata)
	}
	if len(all) != 2 {
		t.Fatalf("%d objects recorded of %s, want 2", len(all), version)
	}
	return all
}

func TestReadsRecordedMetadata(t *testing.T) {
	want := fleet.Advertised{
		BlockSize: 16, Namespace: "default-demo-0a1b2c3d", Component: "backend",
		Subject: "namespace.default-demo-0a1b2c3d.component.backend", KVBlocks: 64, MaxBatchedTokens: 8192, MaxRequests: 256,
	}
	newer := want
	newer.Type, newer.Subject = "aggregated", want.Subject+".endpoint.generate"
	for version, tc := range map[string]struct {
		want     fleet.Advertised
		recovery string
	}{
		"1.2.1": {want, "127.0.0.1:39593/43710f49c0cff/worker_kv_indexer_query_dp0"},
		"1.6.1": {newer, "127.0.0.1:44565/43710f49c0cff/default-demo-0a1b2c3d/backend/worker_kv_query_source_4429e5e1fb3ac"},
	} {
		t.Run(version, func(t *testing.T) {
			for name, m := range recorded(t, version) {
				got := m.said
				if len(got.faults) > 0 || got.zmq {
					t.Errorf("%s: faults %v, zmq %v", name, got.faults, got.zmq)
				}
				if diff := cmp.Diff(tc.want, got.Advertised); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
				if got.ranks != 1 || got.startRank != 0 || len(got.recovery) != 1 {
					t.Errorf("%s: ranks %d from %d, recovery %v", name, got.ranks, got.startRank, got.recovery)
				}
				if len(got.ids) != 1 || got.ids[0] != fleet.WorkerID(name) {
					t.Errorf("%s: ids %v, want %d", name, got.ids, fleet.WorkerID(name))
				}
				if name == "worker-0" && got.recovery[0] != tc.recovery {
					t.Errorf("recovery %q, want %q", got.recovery[0], tc.recovery)
				}
			}
		})
	}
}

// What is odd is left out and named; what is good next to it counts.
func TestOddMetadataCostsNoMoreThanItself(t *testing.T) {
	card := func(runtime string) string {
		return `{"data":{"model_cards":{"k":{"component":"backend","card_json":{"kv_cache_block_size":16,"runtime_config":` + runtime + `}}}}}`
	}
	for name, tc := range map[string]struct {
		spec  string
		fault string // part of it; empty: none
		check func(s *said) bool
	}{
		"nothing":         {``, "", func(s *said) bool { return s.BlockSize == 0 }},
		"null":            {`null`, "", func(s *said) bool { return s.ranks == 0 }},
		"no data":         {`{}`, "", func(s *said) bool { return s.ranks == 0 }},
		"maps are null":   {`{"data":{"endpoints":null,"model_cards":null}}`, "", func(s *said) bool { return s.ranks == 0 }},
		"data is text":    {`{"data":"x"}`, "spec.data", func(s *said) bool { return s.BlockSize == 0 }},
		"card is text":    {`{"data":{"model_cards":{"a":"x","b":{"card_json":{"kv_cache_block_size":32}}}}}`, "model_cards[a]", func(s *said) bool { return s.BlockSize == 32 }},
		"null capacity":   {card(`{"total_kv_blocks":null,"data_parallel_size":2}`), "", func(s *said) bool { return s.ranks == 2 && s.KVBlocks == 0 }},
		"runtime is text": {card(`"x"`), "runtime_config", func(s *said) bool { return s.BlockSize == 16 && s.ranks == 0 }},
		"endless ranks":   {card(`{"data_parallel_size":1000000}`), "data-parallel", func(s *said) bool { return s.ranks == 0 }},
		"negative start":  {card(`{"data_parallel_size":1,"data_parallel_start_rank":-1}`), "data-parallel", func(s *said) bool { return s.startRank == 0 && s.ranks == 0 }},
		"negative blocks": {card(`{"total_kv_blocks":-1}`), "below 0", func(s *said) bool { return s.KVBlocks == 0 }},
		"block size":      {`{"data":{"model_cards":{"k":{"card_json":{"kv_cache_block_size":-16}}}}}`, "block size", func(s *said) bool { return s.BlockSize == 0 }},
		"rank is a word":  {`{"data":{"endpoints":{"k":{"endpoint":"worker_kv_indexer_query_dpX","transport":{"tcp":"h:1/p"}}}}}`, "names no rank", func(s *said) bool { return len(s.recovery) == 0 }},
		"no port":         {`{"data":{"endpoints":{"k":{"endpoint":"worker_kv_indexer_query_dp0","transport":{"tcp":"host/p"}}}}}`, "host:port/path", func(s *said) bool { return len(s.recovery) == 0 }},
		"no path":         {`{"data":{"endpoints":{"k":{"endpoint":"worker_kv_indexer_query_dp0","transport":{"tcp":"host:1"}}}}}`, "host:port/path", func(s *said) bool { return len(s.recovery) == 0 }},
		"other transport": {`{"data":{"endpoints":{"k":{"endpoint":"worker_kv_indexer_query_dp0","transport":{"nats_tcp":"x"}}}}}`, "", func(s *said) bool { return len(s.recovery) == 0 }},
		"two ranks":       {`{"data":{"endpoints":{"a":{"endpoint":"worker_kv_indexer_query_dp0","transport":{"tcp":"h:1/a"}},"b":{"endpoint":"worker_kv_indexer_query_dp1","transport":{"tcp":"h:1/b"}}}}}`, "", func(s *said) bool { return s.recovery[0] == "h:1/a" && s.recovery[1] == "h:1/b" }},
		"two unnamed":     {`{"data":{"endpoints":{"a":{"endpoint":"worker_kv_query_source_a","transport":{"tcp":"h:1/a"}},"b":{"endpoint":"worker_kv_query_source_b","transport":{"tcp":"h:1/b"}}}}}`, "", func(s *said) bool { return len(s.recovery) == 0 }},
		"one unnamed":     {`{"data":{"endpoints":{"a":{"endpoint":"worker_kv_query_source_a","transport":{"tcp":"h:1/a"}}}}}`, "", func(s *said) bool { return s.recovery[0] == "h:1/a" }},
		"over ZMQ":        {`{"data":{"event_channels":{"a":{"topic":"kv-events","transport":{"kind":"Zmq","config":{"endpoint":"tcp://h:1"}}}}}}`, "", func(s *said) bool { return s.zmq }},
	} {
		t.Run(name, func(t *testing.T) {
			s := readMetadata([]byte(tc.spec))
			if !tc.check(s) {
				t.Errorf("read %+v", s)
			}
			all := strings.Join(s.faults, "\n")
			if (tc.fault == "") != (all == "") || !strings.Contains(all, tc.fault) {
				t.Errorf("faults %q, want one with %q", all, tc.fault)
			}
		})
	}
}

func FuzzReadMetadata(f *testing.F) {
	f.Add([]byte(`{"data":{"endpoints":{"a":{"endpoint":"worker_kv_query_source_a","transport":{"tcp":"h:1/a"}}}}}`))
	f.Add([]byte(`{"data":{"model_cards":{"k":{"card_json":{"kv_cache_block_size":16,"runtime_config":{"data_parallel_size":2}}}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := readMetadata(data)
		if s.ranks < 0 || s.ranks > maxRanks || s.BlockSize < 0 || s.BlockSize > maxBlockSize || len(s.faults) > 3 {
			t.Errorf("out of bounds: %+v", s)
		}
	})
}
