package kube

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Reasons of events that are not those of a condition.
const (
	eventPolicyAccepted = "PolicyAccepted"
	eventPolicyRefused  = "PolicyRefused"
	eventPoolEmpty      = "PoolEmpty"
	eventWorkersChanged = "WorkersChanged"
)

// workersEvery is how often a change of workers is told.
const workersEvery = 10 * time.Second

// announcer tells of changes of state as events on the InferencePool. It follows
// them in every replica, so that one that takes over repeats nothing, and tells
// only when asked to.
type announcer struct {
	recorder record.EventRecorder

	statuses map[string]metav1.ConditionStatus // the last that was not Unknown
	policy   verdict
	workers  *fleet.Snapshot // that was told last
	told     time.Time       // when
}

// verdict is what was said of a policy.
type verdict struct {
	uid        types.UID
	generation int64
	status     metav1.ConditionStatus
}

// eventSource is who writes the events.
const eventSource = "warmpath"

// newRecorder returns a recorder of events in a namespace, until ctx ends.
func newRecorder(ctx context.Context, c kubernetes.Interface, namespace string, complaints *complaints) record.EventRecorder {
	b := record.NewBroadcaster(
		record.WithContext(klog.NewContext(ctx, logr.Discard())),
		record.WithSleepDuration(time.Second), // twelve times; an event is no longer news after minutes
		// A pool whose workers come and go must not use up the room of warnings.
		record.WithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: func(e *corev1.Event) string {
			return e.Source.Component + "/" + string(e.InvolvedObject.UID) + "/" + e.Reason
		}}))
	b.StartRecordingToSink(&complainingSink{&typedcorev1.EventSinkImpl{Interface: c.CoreV1().Events(namespace)}, complaints})
	return b.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: eventSource})
}

// complainingSink says once when events may not be written. The library would keep
// that to itself.
type complainingSink struct {
	record.EventSink
	complaints *complaints
}

// Create implements record.EventSink.
func (s *complainingSink) Create(e *corev1.Event) (*corev1.Event, error) {
	written, err := s.EventSink.Create(e)
	s.complaints.about("create", "events", err)
	return written, err
}

// Patch implements record.EventSink.
func (s *complainingSink) Patch(e *corev1.Event, patch []byte) (*corev1.Event, error) {
	written, err := s.EventSink.Patch(e, patch)
	s.complaints.about("patch", "events", err)
	return written, err
}

// follow takes a report in, and tells what changed if aloud.
func (a *announcer) follow(r *report, aloud bool) {
	say := func(kind, reason, message string) {
		if aloud && r.view.Pool != nil {
			a.recorder.Event(poolReference(r.view.Pool), kind, reason, message)
		}
	}
	a.followPolicy(r, say)
	a.followConditions(r, say)
	a.followWorkers(r, aloud, say)
}

func poolReference(pool *inferencev1.InferencePool) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: inferencev1.GroupVersion.String(), Kind: "InferencePool",
		Namespace: pool.Namespace, Name: pool.Name, UID: pool.UID, ResourceVersion: pool.ResourceVersion,
	}
}

func (a *announcer) followPolicy(r *report, say func(kind, reason, message string)) {
	p := r.policies.Chosen
	if p == nil || r.policies.Accepted == metav1.ConditionUnknown {
		return
	}
	now := verdict{p.UID, p.Generation, r.policies.Accepted}
	if a.policy == (verdict{}) { // another replica, or the one before, may have told
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted); c != nil {
			a.policy = verdict{p.UID, c.ObservedGeneration, c.Status}
		}
	}
	if a.policy == now {
		return
	}
	a.policy = now
	text := fmt.Sprintf("RoutingPolicy %s, generation %d: %s", p.Name, p.Generation, r.policies.Message)
	if now.status == metav1.ConditionTrue {
		say(corev1.EventTypeNormal, eventPolicyAccepted, text)
		return
	}
	say(corev1.EventTypeWarning, eventPolicyRefused, text)
}

func (a *announcer) followConditions(r *report, say func(kind, reason, message string)) {
	if a.statuses == nil {
		if r.policies.Accepted == metav1.ConditionUnknown {
			return // what was told before is in the status of a policy that is not read yet
		}
		a.statuses = map[string]metav1.ConditionStatus{}
		if p := r.policies.Chosen; p != nil {
			for _, c := range p.Status.Conditions {
				a.statuses[c.Type] = c.Status
			}
		}
	}
	for _, c := range r.conditions {
		before := a.statuses[c.Type]
		if c.Status == metav1.ConditionUnknown || c.Status == before {
			continue
		}
		a.statuses[c.Type] = c.Status
		switch {
		case toldElsewhere(c, r.conditions):
		case c.Status == metav1.ConditionFalse:
			say(corev1.EventTypeWarning, c.Reason, c.Message)
		case before == metav1.ConditionFalse:
			say(corev1.EventTypeNormal, c.Reason, c.Message)
		}
	}
}

// toldElsewhere says whether another event says the same: those of the policy and
// of an empty pool, and that of the condition that another one follows.
func toldElsewhere(c metav1.Condition, all []metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionAccepted, v1alpha1.ConditionReady:
		return true
	case v1alpha1.ConditionRolesResolved:
		return c.Reason == reasonNoReadyPods
	case v1alpha1.ConditionPrefixAware:
		events := meta.FindStatusCondition(all, v1alpha1.ConditionEventPlaneHealthy)
		return events != nil && events.Message == c.Message
	}
	return false
}

func (a *announcer) followWorkers(r *report, aloud bool, say func(kind, reason, message string)) {
	s := r.view.Snapshot
	if !r.view.Synced || s == nil {
		return
	}
	first := a.workers == nil
	if first {
		a.workers, _ = fleet.NewSnapshot(nil) // no workers, no error
	}
	joined, left, moved := changes(a.workers, s)
	switch {
	case first && len(s.Workers) == 0:
		say(corev1.EventTypeWarning, eventPoolEmpty, emptyPool(r))
	case first || joined+left+moved == 0 && census(a.workers) == census(s):
	case aloud && r.at.Sub(a.told) < workersEvery:
		return // told later, with what else happens until then
	default:
		say(corev1.EventTypeNormal, eventWorkersChanged, fmt.Sprintf("%s joined, %d left%s: %s.", count(joined, "worker"), left, elsewhere(moved), census(s)))
		if len(s.Workers) == 0 {
			say(corev1.EventTypeWarning, eventPoolEmpty, emptyPool(r))
		}
		a.told = r.at
	}
	a.workers = s
}

// changes counts the workers that are in one snapshot only, and those that have
// another address in the second.
func changes(before, after *fleet.Snapshot) (joined, left, moved int) {
	for i := range after.Workers {
		w := &after.Workers[i]
		switch at, ok := before.Index(w.Key); {
		case !ok:
			joined++
		case before.Workers[at].Endpoint != w.Endpoint:
			moved++
		}
	}
	return joined, len(before.Workers) + joined - len(after.Workers), moved
}

// elsewhere tells of workers with another address. Their requests follow by
// themselves.
func elsewhere(moved int) string {
	if moved == 0 {
		return ""
	}
	return fmt.Sprintf(", %d have another IP or port, and are sent to there (nothing to do if pods were replaced, or targetPorts of the pool changed)", moved)
}

func emptyPool(r *report) string {
	if c := meta.FindStatusCondition(r.conditions, v1alpha1.ConditionRolesResolved); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return "The pool has no ready worker."
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
