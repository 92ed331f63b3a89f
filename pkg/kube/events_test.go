package kube

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// listener is an announcer, and what it said.
type listener struct {
	announcer
	t   *testing.T
	out *record.FakeRecorder
	at  time.Time
}

func listen(t *testing.T) *listener {
	out := record.NewFakeRecorder(100)
	return &listener{announcer: announcer{recorder: out}, t: t, out: out, at: epoch}
}

// hear follows a scene a second later than the one before, and returns what was
// said.
func (l *listener) hear(s *scene, aloud bool) []string {
	l.at = l.at.Add(time.Second)
	if s.view.Pool == nil {
		s.view.Pool = &inferencev1.InferencePool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm", UID: "u"}}
	}
	l.follow(&report{at: l.at, view: s.view, policies: s.policy, conditions: s.conditions()}, aloud)
	var said []string
	for {
		select {
		case e := <-l.out.Events:
			said = append(said, e)
		default:
			return said
		}
	}
}

func (l *listener) want(s *scene, want ...string) {
	l.t.Helper()
	if got := l.hear(s, true); !slices.Equal(got, want) {
		l.t.Errorf("said %q, want %q", got, want)
	}
}

const accepted = "Normal PolicyAccepted RoutingPolicy p, generation 7: The policy is in use."

func TestEventsTellOfChangesOnly(t *testing.T) {
	l, s := listen(t), calm(t)
	l.want(s, accepted)
	l.want(s)

	s.view.Roles = []Problem{{"UnknownRole", "pod x is odd"}}
	l.want(s, "Warning UnknownRole Pod x is odd.")
	s.view.Roles = append(s.view.Roles, Problem{"NoDecodeWorkers", "start one"})
	l.want(s) // as bad as before
	s.view.Roles = nil
	l.want(s, "Normal RolesResolved Every ready worker has a role: 2 prefill, 3 decode.")

	// An unknown status between two that are alike is no change.
	s.obs.Events.Warming = "peers"
	l.want(s)
	s.obs.Events.Warming = ""
	l.want(s)

	// What makes two conditions False is told once.
	s.obs.Events.Connected, s.obs.Events.LastError = false, "refused"
	if said := l.hear(s, true); len(said) != 1 || !has(said[0], "Warning Disconnected", "refused") {
		t.Errorf("said %q", said)
	}
	s.obs.Events.Connected = true
	if said := l.hear(s, true); len(said) != 2 || !has(said[0], "Normal Flowing") || !has(said[1], "Normal PrefixAware", "83.4%") {
		t.Errorf("said %q", said)
	}
}

func has(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

func TestEventsOfPolicies(t *testing.T) {
	l, s := listen(t), calm(t)
	l.want(s, accepted)
	policy := *s.policy.Chosen
	policy.Generation = 8
	s.policy.Chosen = &policy
	s.policy.Accepted, s.policy.Reason, s.policy.Message = dim, reasonApplying, "Soon."
	l.want(s)
	s.policy.Accepted, s.policy.Reason, s.policy.Message = no, reasonInvalid, "The policy is refused."
	l.want(s, "Warning PolicyRefused RoutingPolicy p, generation 8: The policy is refused.")
	l.want(s)
	s.policy.Chosen = nil
	s.policy.Accepted, s.policy.Reason, s.policy.Message = yes, reasonConfigurationFile, "None."
	l.want(s)
}

// A replica that starts, or takes over, repeats nothing that was told.
func TestEventsAreNotRepeatedByAnotherReplica(t *testing.T) {
	bad := calm(t)
	bad.view.Roles = []Problem{{"UnknownRole", "pod x is odd"}}

	l := listen(t)
	if said := l.hear(bad, false); len(said) > 0 {
		t.Errorf("a replica without the lease said %q", said)
	}
	l.want(bad) // now it has it

	l = listen(t)
	bad.policy.Chosen.Status.Conditions = bad.conditions() // as the one before wrote
	l.want(bad)

	l = listen(t)
	bad.policy.Chosen.Status.Conditions = nil
	l.want(bad, accepted, "Warning UnknownRole Pod x is odd.")
}

func TestWorkersAreToldTogether(t *testing.T) {
	l, s := listen(t), calm(t)
	l.want(s, accepted)
	s.view.Snapshot = poolOf(t, 4, 2, 0)
	l.want(s, "Normal WorkersChanged 2 workers joined, 1 left: 4 prefill, 2 decode.")
	for i := range 8 { // within ten seconds
		s.view.Snapshot = poolOf(t, 4, 3+i, 0)
		l.want(s)
	}
	l.want(s)
	l.want(s, "Normal WorkersChanged 8 workers joined, 0 left: 4 prefill, 10 decode.")
	l.want(s)

	l.at = l.at.Add(time.Minute)
	one, err := fleet.NewSnapshot(s.view.Snapshot.Workers[:1])
	if err != nil {
		t.Fatal(err)
	}
	s.view.Snapshot = one
	if said := l.hear(s, true); len(said) != 1 || !has(said[0], "0 workers joined, 13 left") {
		t.Errorf("said %q", said)
	}
}

func TestAnEmptyPoolIsTold(t *testing.T) {
	l, s := listen(t), calm(t)
	l.want(s, accepted)
	s.view.Snapshot = poolOf(t, 0, 0, 0)
	s.view.Roles = []Problem{{"NoReadyPods", "no pod matches app=llm"}}
	l.want(s, "Normal WorkersChanged 0 workers joined, 5 left: none.", "Warning PoolEmpty No pod matches app=llm.")
	l.want(s)
	s.view.Snapshot, s.view.Roles = poolOf(t, 2, 3, 0), nil
	l.at = l.at.Add(workersEvery)
	l.want(s, "Normal RolesResolved Every ready worker has a role: 2 prefill, 3 decode.", "Normal WorkersChanged 5 workers joined, 0 left: 2 prefill, 3 decode.")

	// It is told at the start as well.
	l, s = listen(t), calm(t)
	s.policy.Chosen = nil
	s.view.Snapshot = poolOf(t, 0, 0, 0)
	if said := l.hear(s, true); len(said) != 1 || !has(said[0], "Warning PoolEmpty") {
		t.Errorf("said %q", said)
	}
}

// Without a pool there is nothing to hang an event on, and nothing that ends the
// process.
func TestEventsWithoutAPool(t *testing.T) {
	l := listen(t)
	l.follow(&report{at: epoch, conditions: conditions(View{}, Observation{}, window{}, policyState{Chosen: &v1alpha1.RoutingPolicy{}}, epoch, 0)}, true)
	if n := len(l.out.Events); n > 0 {
		t.Errorf("%d events", n)
	}
}

// A worker with another address is a change that people should see.
func TestWorkersThatMove(t *testing.T) {
	l, s := listen(t), calm(t)
	l.want(s, accepted)
	moved := slices.Clone(s.view.Snapshot.Workers)
	moved[0].Endpoint = netip.MustParseAddrPort("10.9.9.9:8000")
	var err error
	if s.view.Snapshot, err = fleet.NewSnapshot(moved); err != nil {
		t.Fatal(err)
	}
	said := l.hear(s, true)
	if len(said) != 1 || !strings.Contains(said[0], "WorkersChanged 0 workers joined, 0 left, 1 have another IP or port") {
		t.Errorf("said %q", said)
	}
}
