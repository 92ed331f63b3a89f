package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// poolOf makes a pool with so many workers per role.
func poolOf(t testing.TB, prefill, decode, aggregated int) *fleet.Snapshot {
	t.Helper()
	var workers []fleet.Worker
	for role, n := range map[fleet.Role]int{fleet.Prefill: prefill, fleet.Decode: decode, fleet.Aggregated: aggregated} {
		for i := range n {
			name := fmt.Sprintf("%s-%d", strings.ToLower(role.String()), i)
			workers = append(workers, fleet.Worker{
				Key: fleet.Key{ID: fleet.WorkerID(name)}, Name: name, Role: role,
				Endpoint: netip.MustParseAddrPort("10.0.0.1:8000"),
			})
		}
	}
	s, err := fleet.NewSnapshot(workers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// scene is what conditions are made of. The one of calm is of a good pool.
type scene struct {
	view   View
	obs    Observation
	window window
	policy policyState
}

func calm(t testing.TB) *scene {
	spec := &v1alpha1.RoutingPolicySpec{}
	spec.EventPlane.NATS.URL = "nats://nats:4222"
	spec.Default()
	s := &scene{
		view: View{Synced: true, Snapshot: poolOf(t, 2, 3, 0)},
		policy: policyState{
			Chosen:   &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 7}},
			Accepted: metav1.ConditionTrue, Reason: reasonAccepted, Message: "The policy is in use.", Spec: spec,
		},
	}
	s.traffic(counts(100, 100, 1000, 834, 910, 50))
	s.obs.IndexedBlocks[fleet.Prefill] = 400
	s.obs.IndexedBlocks[fleet.Decode] = 200
	return s
}

// traffic replaces what happened by a whole window that ends in obs.
func (s *scene) traffic(obs Observation) {
	s.window = window{}
	s.window.add(epoch, Observation{})
	s.window.add(epoch.Add(windowLength), obs)
	obs.IndexedBlocks = s.obs.IndexedBlocks
	s.obs = obs
}

func (s *scene) conditions() []metav1.Condition {
	return conditions(s.view, s.obs, s.window, s.policy, epoch, 7)
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
	dim = metav1.ConditionUnknown
)

func TestConditions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*scene)
		kind   string
		status metav1.ConditionStatus
		reason string
		says   []string // in the message
		ready  string   // reason of Ready
		up     metav1.ConditionStatus
	}{
		{
			name: "all is well", change: func(*scene) {}, kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware",
			says:  []string{"83.4% of prompt blocks were held by the picked worker, 91.0% by the best, over the last 5 minutes."},
			ready: "Ready", up: yes,
		},
		{
			name: "no policy", change: func(s *scene) {
				s.policy.Chosen, s.policy.Reason = nil, reasonConfigurationFile
			}, kind: v1alpha1.ConditionAccepted, status: yes, reason: "ConfigurationFile", ready: "Ready", up: yes,
		},
		{
			name: "refused", change: func(s *scene) {
				s.policy.Accepted, s.policy.Reason, s.policy.Message = no, reasonInvalid, "The policy is refused: spec.blockSize: no."
			}, kind: v1alpha1.ConditionAccepted, status: no, reason: "Invalid", says: []string{"spec.blockSize"}, ready: "Invalid", up: no,
		},
		{
			name: "being applied", change: func(s *scene) {
				s.policy.Accepted, s.policy.Reason, s.policy.Message = dim, reasonApplying, "Soon."
			}, kind: v1alpha1.ConditionAccepted, status: dim, reason: "Applying", ready: "Applying", up: dim,
		},
		{
			name: "no pool", change: func(s *scene) {
				s.view = View{Refs: []Problem{{"PoolNotFound", "InferencePool a/b does not exist; create it"}}}
			}, kind: v1alpha1.ConditionResolvedRefs, status: no, reason: "PoolNotFound",
			says: []string{"InferencePool a/b does not exist; create it."}, ready: "PoolNotFound", up: no,
		},
		{
			name: "missing file", change: func(s *scene) {
				s.obs.MissingFiles = []error{errors.New("eventPlane.nats.tokenFile: open /etc/nats/token: no such file or directory")}
			}, kind: v1alpha1.ConditionResolvedRefs, status: no, reason: "FileNotFound",
			says: []string{"spec.eventPlane.nats.tokenFile", "/etc/nats/token", "the Secret that is mounted there lacks this key, or does not exist.", "extraSecrets"}, ready: "FileNotFound", up: no,
		},
		{
			name: "broken file", change: func(s *scene) {
				s.obs.MissingFiles = []error{errors.New("eventPlane.nats.nkeyFile: /etc/nats/seed holds no seed of a user")}
			}, kind: v1alpha1.ConditionResolvedRefs, status: no, reason: "FileUnusable",
			says: []string{"spec.eventPlane.nats.nkeyFile: /etc/nats/seed holds no seed of a user."}, ready: "FileUnusable", up: no,
		},
		{
			name: "pool not read yet", change: func(s *scene) { s.view = View{} }, kind: v1alpha1.ConditionResolvedRefs,
			status: dim, reason: "NotSynced", ready: "NotSynced", up: dim,
		},
		{
			name: "pods not read yet", change: func(s *scene) { s.view = View{} }, kind: v1alpha1.ConditionRolesResolved,
			status: dim, reason: "NotSynced", ready: "NotSynced", up: dim,
		},
		{
			name: "roles", change: func(*scene) {}, kind: v1alpha1.ConditionRolesResolved, status: yes, reason: "RolesResolved",
			says: []string{"2 prefill, 3 decode"}, ready: "Ready", up: yes,
		},
		{
			name: "unknown role", change: func(s *scene) {
				s.view.Roles = []Problem{{"UnknownRole", "pod x has a role that nobody knows"}, {"NoPrefillWorkers", "start some"}}
			}, kind: v1alpha1.ConditionRolesResolved, status: no, reason: "UnknownRole",
			says: []string{"Pod x has a role that nobody knows. Start some."}, ready: "UnknownRole", up: no,
		},
		{
			name: "no worker", change: func(s *scene) { s.view.Snapshot = poolOf(t, 0, 0, 0) }, kind: v1alpha1.ConditionRolesResolved,
			status: no, reason: "NoReadyPods", ready: "NoReadyPods", up: no,
		},
		{
			name: "events flow", change: func(*scene) {}, kind: v1alpha1.ConditionEventPlaneHealthy, status: yes, reason: "Flowing",
			says: []string{"KV events of the workers arrive"}, ready: "Ready", up: yes,
		},
		{
			name: "no event needed", change: func(s *scene) { s.traffic(counts(100, 100, 1000, 990, 990, 0)) },
			kind: v1alpha1.ConditionEventPlaneHealthy, status: yes, reason: "Connected", ready: "Ready", up: yes,
		},
		{
			name: "no traffic", change: func(s *scene) { s.traffic(counts(0, 0, 0, 0, 0, 0)) },
			kind: v1alpha1.ConditionEventPlaneHealthy, status: yes, reason: "Connected", ready: "Ready", up: yes,
		},
		{
			name: "warming up", change: func(s *scene) { s.obs.Events.Warming = "a snapshot of a peer" },
			kind: v1alpha1.ConditionEventPlaneHealthy, status: dim, reason: "WarmingUp", says: []string{"a snapshot of a peer"}, ready: "Ready", up: yes,
		},
		{
			name: "silence", change: func(s *scene) {
				s.traffic(counts(21, 21, 210, 0, 0, 0))
				s.policy.Spec.EventPlane.NATS.Namespace = "prod"
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: no, reason: "NoEvents",
			says: []string{"21 prompts", "5 workers", `"prod"`, "DYN_EVENT_PLANE=nats", "--enable-prefix-caching"}, ready: "NoEvents", up: no,
		},
		{
			name: "silence makes prefixes unknown", change: func(s *scene) { s.traffic(counts(21, 21, 210, 0, 0, 0)) },
			kind: v1alpha1.ConditionPrefixAware, status: no, reason: "NoEvents", ready: "NoEvents", up: no,
		},
		{
			name: "too few to call it silence", change: func(s *scene) { s.traffic(counts(20, 20, 100, 0, 0, 0)) },
			kind: v1alpha1.ConditionEventPlaneHealthy, status: yes, reason: "Connected", ready: "Ready", up: yes,
		},
		{
			name: "silence of an empty pool", change: func(s *scene) {
				s.traffic(counts(21, 21, 210, 0, 0, 0))
				s.view.Snapshot = poolOf(t, 0, 0, 0)
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: yes, reason: "Connected", ready: "NoReadyPods", up: no,
		},
		{
			name: "disconnected", change: func(s *scene) {
				s.obs.Events.Connected, s.obs.Events.LastError = false, "dial tcp: connection refused"
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: no, reason: "Disconnected", says: []string{"connection refused"}, ready: "Disconnected", up: no,
		},
		{
			name: "connecting", change: func(s *scene) {
				s.obs.Events.Connected, s.obs.Events.Warming = false, "a connection"
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: dim, reason: "WarmingUp", ready: "Ready", up: yes,
		},
		{
			name: "no server", change: func(s *scene) { s.obs.Events = EventState{NoServer: true} },
			kind: v1alpha1.ConditionEventPlaneHealthy, status: no, reason: "NoServer", says: []string{"spec.eventPlane.nats.url"}, ready: "NoServer", up: no,
		},
		{
			name: "events off", change: func(s *scene) { s.obs.Events = EventState{Disabled: true} },
			kind: v1alpha1.ConditionEventPlaneHealthy, status: no, reason: "Disabled", ready: "Approximate", up: yes,
		},
		{
			name: "events off, no prefixes", change: func(s *scene) { s.obs.Events = EventState{Disabled: true} },
			kind: v1alpha1.ConditionPrefixAware, status: no, reason: "EventsDisabled", ready: "Approximate", up: yes,
		},
		{
			name: "events off does not hide what is missing", change: func(s *scene) {
				s.obs.Events = EventState{Disabled: true}
				s.view.Snapshot = poolOf(t, 0, 0, 0)
			}, kind: v1alpha1.ConditionPrefixAware, status: no, reason: "EventsDisabled", ready: "NoReadyPods", up: no,
		},
		{
			name: "strangers", change: func(s *scene) {
				obs := counts(100, 100, 1000, 0, 0, 44)
				obs.StrangerEvents = 44
				s.traffic(obs)
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: no, reason: "EventsFromUnknownWorkers",
			says: []string{"44 KV events", "DYN_DISCOVERY_BACKEND=kubernetes", "workerIdentity"}, ready: "EventsFromUnknownWorkers", up: no,
		},
		{
			name: "only strangers, and nobody asks", change: func(s *scene) {
				obs := counts(0, 0, 0, 0, 0, 44)
				obs.StrangerEvents = 44
				s.traffic(obs)
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: yes, reason: "Connected", ready: "Ready", up: yes,
		},
		{
			name: "no server before the policy is read", change: func(s *scene) {
				s.obs.Events = EventState{NoServer: true}
				s.policy.Accepted, s.policy.Reason, s.policy.Message = dim, reasonApplying, "Soon."
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: dim, reason: "Applying", ready: "Applying", up: dim,
		},
		{
			name: "strangers among ours", change: func(s *scene) {
				obs := counts(100, 100, 1000, 10, 10, 45)
				obs.StrangerEvents = 44
				s.traffic(obs)
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: yes, reason: "Flowing", says: []string{"KV events of the workers arrive"}, ready: "Ready", up: yes,
		},
		{
			name: "never any traffic", change: func(s *scene) { s.traffic(counts(0, 0, 0, 0, 0, 0)) },
			kind: v1alpha1.ConditionPrefixAware, status: dim, reason: "NoTraffic", ready: "Ready", up: yes,
		},
		{
			name: "young", change: func(s *scene) {
				s.window = window{}
				s.window.add(epoch, Observation{})
				s.window.add(epoch.Add(sampleEvery), counts(3, 3, 30, 0, 0, 0))
			}, kind: v1alpha1.ConditionPrefixAware, status: dim, reason: "NoTraffic", says: []string{"3 prompts"}, ready: "Ready", up: yes,
		},
		{
			name: "idle after traffic", change: func(s *scene) {
				s.window.add(epoch.Add(3*windowLength), counts(100, 100, 1000, 834, 910, 50))
			}, kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", says: []string{"83.4%", "with traffic"}, ready: "Ready", up: yes,
		},
		{
			name: "broken stays broken when idle", change: func(s *scene) {
				s.traffic(counts(100, 100, 1000, 0, 0, 0))
				s.window.add(epoch.Add(3*windowLength), counts(100, 100, 1000, 0, 0, 0))
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: no, reason: "NoEvents", ready: "NoEvents", up: no,
		},
		{
			name: "no tokens", change: func(s *scene) {
				s.traffic(counts(100, 49, 1000, 100, 100, 50))
				s.obs.TokenizerWaits = "the files of org/model"
			}, kind: v1alpha1.ConditionPrefixAware, status: no, reason: "NoTokens",
			says: []string{"51 of 100 prompts", "the files of org/model"}, ready: "NoTokens", up: no,
		},
		{
			name: "tokens of half are enough", change: func(s *scene) { s.traffic(counts(100, 50, 1000, 100, 100, 50)) },
			kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", ready: "Ready", up: yes,
		},
		{
			name: "no tokenizer", change: func(s *scene) {
				s.traffic(counts(100, 0, 0, 0, 0, 50))
				s.policy.Spec.Tokenizer.Disabled = true
			}, kind: v1alpha1.ConditionPrefixAware, status: no, reason: "NoTokens", says: []string{"tokenizer.disabled"}, ready: "NoTokens", up: no,
		},
		{
			name: "blocks on the wrong role", change: func(s *scene) {
				s.obs.IndexedBlocks = [3]int{fleet.Decode: 600}
				s.traffic(counts(100, 100, 1000, 0, 0, 50))
			}, kind: v1alpha1.ConditionPrefixAware, status: no, reason: "WrongRole",
			says: []string{"600 blocks", "pool has 2", "DYN_COMPONENT", "spec.roles.labels"}, ready: "WrongRole", up: no,
		},
		{
			name: "blocks on the wrong role, found by the worker that is best", change: func(s *scene) {
				s.obs.IndexedBlocks = [3]int{fleet.Decode: 600}
				s.traffic(counts(100, 100, 1000, 0, 500, 50))
			}, kind: v1alpha1.ConditionPrefixAware, status: no, reason: "WrongRole", ready: "WrongRole", up: no,
		},
		{
			name: "decode workers prefill where requests are never split", change: func(s *scene) {
				s.policy.Spec.Disaggregation.Mode = v1alpha1.DisaggregationNever
				s.obs.IndexedBlocks = [3]int{fleet.Decode: 600}
				s.traffic(counts(100, 100, 1000, 300, 500, 50))
			}, kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", ready: "Ready", up: yes,
		},
		{
			name: "aggregated workers prefill, too", change: func(s *scene) {
				s.view.Snapshot = poolOf(t, 1, 1, 1)
				s.obs.IndexedBlocks = [3]int{fleet.Decode: 600, fleet.Aggregated: 1}
			}, kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", ready: "Ready", up: yes,
		},
		{
			name: "decode workers alone prefill, too", change: func(s *scene) {
				s.view.Snapshot = poolOf(t, 0, 3, 0)
				s.obs.IndexedBlocks = [3]int{fleet.Decode: 600}
				s.traffic(counts(100, 100, 1000, 300, 500, 50))
			}, kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", ready: "Ready", up: yes,
		},
		{
			name: "nothing indexed", change: func(s *scene) {
				s.obs.IndexedBlocks = [3]int{}
				s.traffic(counts(100, 100, 1000, 0, 0, 50))
			}, kind: v1alpha1.ConditionPrefixAware, status: no, reason: "NothingIndexed", says: []string{"blockSize, 16"}, ready: "NothingIndexed", up: no,
		},
		{
			name: "no hits", change: func(s *scene) { s.traffic(counts(100, 100, 1000, 0, 0, 50)) },
			kind: v1alpha1.ConditionPrefixAware, status: no, reason: "NoHits",
			says: []string{"600 blocks", "100 prompts (1000 blocks)", "tokenizer", "cacheSalt", "adapters"}, ready: "NoHits", up: no,
		},
		{
			name: "guesses alone are no hits", change: func(s *scene) {
				s.traffic(counts(100, 100, 1000, 500, 600, 50))
				for i := range s.window.samples {
					s.window.samples[i].obs.FoundPrompts = 0
				}
				s.window.busy.Found = 0
			},
			kind: v1alpha1.ConditionPrefixAware, status: no, reason: "NoHits", says: []string{"HIT and CEILING"}, ready: "NoHits", up: no,
		},
		{
			name: "too early to expect a hit", change: func(s *scene) {
				s.window = window{}
				s.window.add(epoch, Observation{})
				s.window.add(epoch.Add(windowLength/2), counts(100, 100, 1000, 0, 0, 50))
			}, kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", says: []string{"0.0%", "last 3 minutes"}, ready: "Ready", up: yes,
		},
		{
			name: "too few blocks to expect a hit", change: func(s *scene) { s.traffic(counts(30, 30, 200, 0, 0, 50)) },
			kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", says: []string{"0.0%"}, ready: "Ready", up: yes,
		},
		{
			name: "short prompts", change: func(s *scene) { s.traffic(counts(30, 30, 0, 0, 0, 0)) },
			kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", says: []string{"shorter than one block (16 tokens)"}, ready: "Ready", up: yes,
		},
		{
			name: "other block size", change: func(s *scene) {
				s.view.Advertised = []Problem{{"UnreadableMetadata", "odd"}, {"BlockSizeMismatch", "blockSize is 16, not 64"}}
			}, kind: v1alpha1.ConditionPrefixAware, status: no, reason: "BlockSizeMismatch", says: []string{"BlockSize is 16, not 64."}, ready: "BlockSizeMismatch", up: no,
		},
		{
			name: "unreadable metadata breaks nothing", change: func(s *scene) {
				s.view.Advertised = []Problem{{"UnreadableMetadata", "odd"}}
			}, kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", ready: "Ready", up: yes,
		},
		{
			name: "overlap does not count", change: func(s *scene) {
				s.policy.Spec.Cost = v1alpha1.CostSpec{Model: v1alpha1.ModelDynamo, OverlapScoreCredit: new(float64)}
			}, kind: v1alpha1.ConditionPrefixAware, status: no, reason: "OverlapIgnored", says: []string{"cost.overlapScoreCredit"}, ready: "LoadOnly", up: yes,
		},
		{
			name: "a condition without effect", change: func(s *scene) {
				s.policy.Spec.Disaggregation.Condition, s.policy.Spec.Handoff.Preset = v1alpha1.ConditionShortPrompt, v1alpha1.HandoffDynamo
			}, kind: v1alpha1.ConditionAccepted, status: yes, reason: "Accepted",
			says:  []string{"The policy is in use. disaggregation.condition: ShortPrompt has no effect", "no aggregated worker"},
			ready: "Ready", up: yes,
		},
		{
			name: "overlap counts for a class", change: func(s *scene) {
				s.policy.Spec.Cost = v1alpha1.CostSpec{
					Model: v1alpha1.ModelDynamo, OverlapScoreCredit: new(float64),
					Classes: []v1alpha1.CostClass{{Name: "a", OverlapScoreCredit: new(0.5)}},
				}
			}, kind: v1alpha1.ConditionPrefixAware, status: yes, reason: "PrefixAware", ready: "Ready", up: yes,
		},
		{
			name: "no events, as nothing would count", change: func(s *scene) {
				s.policy.Spec.Cost = v1alpha1.CostSpec{Model: v1alpha1.ModelDynamo, OverlapScoreCredit: new(float64)}
				s.obs.Events = EventState{Disabled: true}
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: no, reason: "Disabled", says: []string{"cost.overlapScoreCredit: 0"}, ready: "LoadOnly", up: yes,
		},
		{
			name: "approximate", change: func(s *scene) {
				s.policy.Spec.Cost.UseKVEvents = new(false)
				s.obs.Events = EventState{Disabled: true}
			}, kind: v1alpha1.ConditionEventPlaneHealthy, status: no, reason: "Disabled", says: []string{"cost.useKVEvents"}, ready: "Approximate", up: yes,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := calm(t)
			tc.change(s)
			all := s.conditions()
			checkForm(t, all)
			c := meta.FindStatusCondition(all, tc.kind)
			if c.Status != tc.status || c.Reason != tc.reason {
				t.Errorf("%s = %s/%s (%s), want %s/%s", tc.kind, c.Status, c.Reason, c.Message, tc.status, tc.reason)
			}
			for _, part := range tc.says {
				if !strings.Contains(c.Message, part) {
					t.Errorf("message %q lacks %q", c.Message, part)
				}
			}
			r := meta.FindStatusCondition(all, v1alpha1.ConditionReady)
			if r.Status != tc.up || r.Reason != tc.ready {
				t.Errorf("Ready = %s/%s (%s), want %s/%s", r.Status, r.Reason, r.Message, tc.up, tc.ready)
			}
		})
	}
}

var reasonForm = regexp.MustCompile(`^[A-Z][A-Za-z]*$`)

// checkForm checks what holds for all conditions.
func checkForm(t *testing.T, all []metav1.Condition) {
	t.Helper()
	want := []string{
		v1alpha1.ConditionAccepted, v1alpha1.ConditionResolvedRefs, v1alpha1.ConditionRolesResolved,
		v1alpha1.ConditionEventPlaneHealthy, v1alpha1.ConditionPrefixAware, v1alpha1.ConditionReady,
	}
	if len(all) != len(want) {
		t.Fatalf("%d conditions, want %d", len(all), len(want))
	}
	for i, c := range all {
		switch {
		case c.Type != want[i]:
			t.Errorf("condition %d is %s, want %s", i, c.Type, want[i])
		case !reasonForm.MatchString(c.Reason):
			t.Errorf("%s: reason %q", c.Type, c.Reason)
		case c.Message == "" || !strings.HasSuffix(c.Message, "."):
			t.Errorf("%s: message %q is no sentence", c.Type, c.Message)
		case c.ObservedGeneration != 7 || !c.LastTransitionTime.Time.Equal(epoch):
			t.Errorf("%s: generation %d, time %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
		}
	}
}

func TestMessagesAreBounded(t *testing.T) {
	s := calm(t)
	for i := range 30 {
		s.view.Roles = append(s.view.Roles, Problem{"UnknownRole", fmt.Sprintf("pod %d %s", i, strings.Repeat("ü", 100))})
	}
	s.obs.MissingFiles = []error{errors.New(strings.Repeat("日", 2000))}
	for _, c := range s.conditions() {
		if len(c.Message) > maxMessage || !utf8.ValidString(c.Message) {
			t.Errorf("%s: a message of %d bytes, valid %v", c.Type, len(c.Message), utf8.ValidString(c.Message))
		}
	}
	short := problems("x", []Problem{{"A", "a"}, {"B", "b"}})
	if short.Message != "A. B." || short.Reason != "A" {
		t.Errorf("problems = %+v", short)
	}
	many := make([]Problem, 13)
	if c := problems("x", many); !strings.HasSuffix(c.Message, "And 3 more.") {
		t.Errorf("message %q", c.Message)
	}
	if got := bounded("a\xffb"); got != "a?b" {
		t.Errorf("bounded = %q", got)
	}
}

// Inputs that a Go type allows but nobody makes must not end the process.
func TestConditionsOfNothing(t *testing.T) {
	for _, c := range conditions(View{}, Observation{}, window{}, policyState{}, epoch, 0)[1:] {
		if c.Reason == "" || c.Message == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestMergeKeepsTheTimeOfAStatus(t *testing.T) {
	later := epoch.Add(time.Hour)
	at := func(kind string, status metav1.ConditionStatus, reason string, when time.Time) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(when)}
	}
	before := []metav1.Condition{at("A", yes, "x", epoch), at("B", yes, "x", epoch)}
	got := merge(before, []metav1.Condition{at("A", yes, "y", later), at("B", no, "x", later), at("C", no, "x", later)})
	for i, want := range []time.Time{epoch, later, later} {
		if !got[i].LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s since %s, want %s", got[i].Type, got[i].LastTransitionTime, want)
		}
	}
	if got[0].Reason != "y" {
		t.Error("the old reason was kept")
	}
}

func TestConflictedNamesTheOther(t *testing.T) {
	older := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "first"}}
	mine := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "second", Generation: 3}}
	mine.Spec.TargetRef.Name = "llm"
	list := conflicted(mine, older, epoch)
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		c := meta.FindStatusCondition(list, kind)
		if c == nil || c.Status != no || c.Reason != "Conflicted" || c.ObservedGeneration != 3 || !strings.Contains(c.Message, "RoutingPolicy first, which is older, is in use") {
			t.Errorf("%s: %+v", kind, c)
		}
	}
}

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"no pod is ready":                 "No pod is ready.",
		"spec.roles is odd":               "spec.roles is odd.",
		"nvidia.com/x has a word":         "nvidia.com/x has a word.",
		"system:serviceaccount:a:b fails": "system:serviceaccount:a:b fails.",
		"Done.":                           "Done.",
		"":                                ".",
	} {
		if got := sentence(text); got != want {
			t.Errorf("sentence(%q) = %q, want %q", text, got, want)
		}
	}
}

// A condition has an effect where the handoff takes a decode worker alone, and where
// aggregated workers take what is not split.
func TestConditionsOfSplitsInVain(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*scene)
		vain   bool
	}{
		"no condition":    {func(s *scene) { s.policy.Spec.Disaggregation.Condition = v1alpha1.ConditionNever }, false},
		"both are needed": {func(*scene) {}, true},
		"one is enough":   {func(s *scene) { s.policy.Spec.Disaggregation.NeedsPair = v1alpha1.PairNever }, false},
		"another handoff": {func(s *scene) { s.policy.Spec.Handoff.Preset = v1alpha1.HandoffDefault }, false},
		"always needed": {func(s *scene) {
			s.policy.Spec.Handoff.Preset, s.policy.Spec.Disaggregation.NeedsPair = "", v1alpha1.PairAlways
		}, true},
		"always split":      {func(s *scene) { s.policy.Spec.Disaggregation.Mode = v1alpha1.DisaggregationRequired }, false},
		"aggregated, too":   {func(s *scene) { s.view.Snapshot = poolOf(t, 2, 3, 1) }, false},
		"nobody to prefill": {func(s *scene) { s.view.Snapshot = poolOf(t, 0, 3, 0) }, false},
		"no pool":           {func(s *scene) { s.view.Snapshot = nil }, false},
		"not in use":        {func(s *scene) { s.policy.Accepted = no }, false},
	} {
		s := calm(t)
		s.policy.Spec.Disaggregation.Condition, s.policy.Spec.Handoff.Preset = v1alpha1.ConditionEither, v1alpha1.HandoffDynamo
		tc.change(s)
		c := meta.FindStatusCondition(s.conditions(), v1alpha1.ConditionAccepted)
		if got := strings.Contains(c.Message, "has no effect"); got != tc.vain {
			t.Errorf("%s: %q", name, c.Message)
		}
	}
}
