package discovery

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// defaultRules are those of a configuration that says nothing about workers.
func defaultRules() Rules {
	var s v1alpha1.RoutingPolicySpec
	s.Default()
	return RulesOf(&s)
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	write(t, path, header+`workers:
- name: worker-0
  address: 10.0.0.1
  ports: [8000]
  labels: {nvidia.com/dynamo-component-type: worker, nvidia.com/dynamo-sub-component-type: prefill}
- name: two-ports
  address: fd00::2
  ports: [8000, 8001]
  labels: {DYN_COMPONENT: decode}
  workerID: "18446744073709551615"
  recoveryEndpoints: ["[fd00::2]:4001/1b/dp0", "[fd00::2]:4001/1b/dp1"]
  kvBlocks: 5000
  maxBatchedTokens: 8192
- name: two-ranks
  address: 10.0.0.3
  ports: [8000]
  dataParallelSize: 2
  workerID: 7
  recoveryEndpoints: []
- name: away
  address: 10.0.0.4
  ports: [8000]
  ready: false
`)
	got, err := Load(path, defaultRules())
	if err != nil {
		t.Fatal(err)
	}
	const two = 1<<64 - 1
	room := fleet.Say(fleet.Advertised{KVBlocks: 5000, MaxBatchedTokens: 8192}) // of each rank
	want := []fleet.Worker{
		{Key: fleet.Key{ID: 7, Rank: 0}, Name: "two-ranks", Endpoint: netip.MustParseAddrPort("10.0.0.3:8000"), Role: fleet.Aggregated},
		{Key: fleet.Key{ID: 7, Rank: 1}, Name: "two-ranks", Endpoint: netip.MustParseAddrPort("10.0.0.3:8000"), Role: fleet.Aggregated},
		{Key: fleet.Key{ID: fleet.WorkerID("worker-0"), Rank: 0}, Name: "worker-0", Endpoint: netip.MustParseAddrPort("10.0.0.1:8000"), Role: fleet.Prefill},
		{Key: fleet.Key{ID: two, Rank: 0}, Name: "two-ports", Endpoint: netip.MustParseAddrPort("[fd00::2]:8000"), Role: fleet.Decode, Recovery: "[fd00::2]:4001/1b/dp0", Says: room},
		{Key: fleet.Key{ID: two, Rank: 1}, Name: "two-ports", Endpoint: netip.MustParseAddrPort("[fd00::2]:8001"), Role: fleet.Decode, Recovery: "[fd00::2]:4001/1b/dp1", Says: room},
	}
	if diff := cmp.Diff(want, got.Workers, cmpopts.EquateComparable(netip.AddrPort{}, fleet.Says{}, fleet.Site{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "absent.yaml"), defaultRules()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "create it") {
		t.Errorf("absent file: %v", err)
	}
	if _, err := Load(dir, defaultRules()); err == nil || !strings.Contains(err.Error(), "list of workers") {
		t.Errorf("folder: %v", err)
	}
	for _, c := range []struct{ name, content, want string }{
		{"strict", header + "workers: []\nextra: 1\n", "workers.yaml:4: extra: unknown field"},
		{
			"same id", header + "workers:\n- {name: a, address: 10.0.0.1, ports: [1], workerID: 9}\n- {name: worker-0, address: 10.0.0.2, ports: [1], workerID: 5}\n" +
				"- {name: c, address: 10.0.0.3, ports: [1], workerID: 5}\n",
			"5 is already the id of workers[1]",
		},
		{
			"recovery endpoints", header + "workers:\n- {name: a, address: 10.0.0.1, ports: [1], dataParallelSize: 2, recoveryEndpoints: [\"10.0.0.1:2/a/dp0\"]}\n",
			"workers.yaml:4: workers[0].recoveryEndpoints: lists 1 for 2",
		},
		{"unknown role", worker("a", 1, "DYN_COMPONENT: frontend"), `worker "a": label DYN_COMPONENT: "frontend" is no role`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, "workers.yaml")
			write(t, path, c.content)
			if _, err := Load(path, defaultRules()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want %q", err, c.want)
			}
		})
	}
}

// An id that is written down may be the hash of another worker's name.
func TestLoadRefusesIDOfAnotherName(t *testing.T) {
	list := &v1alpha1.WorkerList{Workers: []v1alpha1.WorkerSpec{
		{Name: "a", Address: "10.0.0.1", Ports: []int{1}},
		{Name: "b", Address: "10.0.0.2", Ports: []int{1}, WorkerID: new(v1alpha1.WorkerID(fleet.WorkerID("a")))},
	}}
	list.Default()
	if err := list.Validate(); err != nil {
		t.Fatal(err)
	}
	_, err := Snapshot(list, defaultRules())
	if err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("error = %v, want one that names both", err)
	}
}

// Where a worker runs is what the list says, else what its labels do.
func TestSites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	write(t, path, header+`workers:
- {name: a, address: 10.0.0.1, ports: [8000, 8001], site: {zone: z1, rack: r1, host: h1, fabric: f1}, connector: nixl}
- {name: b, address: 10.0.0.2, ports: [8000], labels: {topology.kubernetes.io/zone: z2, dynamo.topology/rack: r2, nvidia.com/gpu.clique: f2, llm-d.ai/engine-type: vllm}}
- {name: c, address: 10.0.0.3, ports: [8000], site: {host: h3}, labels: {topology.kubernetes.io/zone: z3, kubernetes.io/hostname: other}}
- {name: d, address: 10.0.0.4, ports: [8000]}
`)
	pool, err := Load(path, defaultRules())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]fleet.Location{
		"a": {Zone: "z1", Rack: "r1", Host: "h1", Fabric: "f1", Connector: "nixl"},
		"b": {Zone: "z2", Rack: "r2", Fabric: "f2", Connector: "vllm"},
		"c": {Zone: "z3", Host: "h3"},
		"d": {},
	}
	for _, w := range pool.Workers {
		if got := w.Site.Location(); got != want[w.Name] {
			t.Errorf("%s/%d: %+v, want %+v", w.Name, w.Rank, got, want[w.Name])
		}
	}
	if len(pool.Workers) != 5 {
		t.Errorf("%d workers", len(pool.Workers))
	}
}
