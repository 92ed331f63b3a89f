package fleet_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// Known answers: dynamo.md 3.1 and dynamo-live.md section 2.
func TestWorkerIDKnownAnswers(t *testing.T) {
	for name, want := range map[string]uint64{
		"worker-0": 1186445869714687,
		"vllm-agg-vllmdecodeworker-7d9f8c6b5-x2x7k": 8006437602952533,
		"a":                 7688582637611507,
		"":                  121655548788207,
		"worker-0-engine-1": 4054906713372226,
	} {
		if got := fleet.WorkerID(name); got != want {
			t.Errorf("WorkerID(%q) = %d, want %d", name, got, want)
		}
	}
}

func TestRoleRules(t *testing.T) {
	rules := fleet.RoleRules{
		Labels:     []string{"type", "sub", "llm-d.ai/role"},
		Prefill:    []string{"prefill"},
		Decode:     []string{"decode"},
		Aggregated: []string{"worker", "both"},
	}
	for _, tc := range []struct {
		name   string
		labels map[string]string
		want   fleet.Role
		ok     bool
	}{
		{"no label", nil, fleet.Aggregated, false},
		{"unknown value", map[string]string{"type": "planner"}, fleet.Aggregated, false},
		{"aggregated", map[string]string{"type": "worker"}, fleet.Aggregated, true},
		{"first label wins", map[string]string{"type": "decode", "sub": "prefill"}, fleet.Decode, true},
		{"sub-type refines worker", map[string]string{"type": "worker", "sub": "prefill"}, fleet.Prefill, true},
		{"last label alone", map[string]string{"llm-d.ai/role": "both"}, fleet.Aggregated, true},
	} {
		got, ok := rules.Role(tc.labels)
		if got != tc.want || ok != tc.ok {
			t.Errorf("%s: Role = %v, %v, want %v, %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
}

func TestSnapshot(t *testing.T) {
	ep := netip.MustParseAddrPort("[::1]:8000")
	s, err := fleet.NewSnapshot([]fleet.Worker{
		{Key: fleet.Key{ID: 1 << 63, Rank: 0}, Name: "b", Endpoint: ep, Role: fleet.Decode},
		{Key: fleet.Key{ID: 7, Rank: 1}, Name: "a", Endpoint: ep, Role: fleet.Prefill},
		{Key: fleet.Key{ID: 7, Rank: 0}, Name: "a", Endpoint: ep, Role: fleet.Prefill},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []fleet.Key{{ID: 7}, {ID: 7, Rank: 1}, {ID: 1 << 63}} {
		if s.Workers[i].Key != want {
			t.Errorf("Workers[%d] = %v, want %v", i, s.Workers[i].Key, want)
		}
		if got, ok := s.Index(want); !ok || got != i {
			t.Errorf("Index(%v) = %d, %v", want, got, ok)
		}
	}
	if _, ok := s.Index(fleet.Key{ID: 9}); ok {
		t.Error("Index found a worker that is not there")
	}
	if s.Count(fleet.Prefill) != 2 || s.Count(fleet.Decode) != 1 || s.Count(fleet.Aggregated) != 0 {
		t.Error("wrong counts per role")
	}
	_, err = fleet.NewSnapshot([]fleet.Worker{{Name: "x"}, {Name: "y"}})
	if err == nil || !strings.Contains(err.Error(), `"x" and "y"`) {
		t.Errorf("same key twice: %v", err)
	}
}

func TestSays(t *testing.T) {
	if fleet.Say(fleet.Advertised{}) != (fleet.Says{}) || (fleet.Says{}).Advertised() != (fleet.Advertised{}) {
		t.Error("a worker that says nothing says something")
	}
	a := fleet.Advertised{BlockSize: 16, Component: "prefill", KVBlocks: 1}
	b := a
	b.KVBlocks = 2
	same := a
	if fleet.Say(a).Advertised() != a || fleet.Say(a) != fleet.Say(same) || fleet.Say(a) == fleet.Say(b) {
		t.Error("what is said is not what was said")
	}
}
