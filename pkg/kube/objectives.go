package kube

import (
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
)

// InferenceObjectives are in one of two groups, by the age of what installed them
// (endpoint-picker.md 2.4). A cluster may have none, either or both.
var (
	objectiveVersion    = schema.GroupVersion{Group: "llm-d.ai", Version: "v1alpha2"}
	oldObjectiveVersion = schema.GroupVersion{Group: "inference.networking.x-k8s.io", Version: "v1alpha2"}

	objectiveKind    = objectiveVersion.WithKind("InferenceObjective")
	oldObjectiveKind = oldObjectiveVersion.WithKind("InferenceObjective")
)

const objectiveResource = "inferenceobjectives"

// objective is an InferenceObjective. Its spec is read when it is kept, so that one
// that is odd does not fail the whole list.
type objective struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec json.RawMessage `json:"spec,omitempty"`

	read *objectiveSpec // what trimObjective read from Spec, nil when that was odd
}

// objectiveSpec is the part of its spec that is used.
type objectiveSpec struct {
	Priority int32 `json:"priority"`
	Pool     struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
		Name  string `json:"name"`
	} `json:"poolRef"`
}

// concerns says whether an objective is one of a pool.
func (s *objectiveSpec) concerns(pool string) bool {
	group, kind := s.Pool.Group, s.Pool.Kind
	return s.Pool.Name == pool && (group == "" || group == inferencev1.GroupVersion.Group) && (kind == "" || kind == poolKind.Kind)
}

// oldObjective is an objective of the old group: for each kind the cache wants a type
// of its own.
type oldObjective struct{ objective }

type objectiveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []objective `json:"items"`
}

type oldObjectiveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []oldObjective `json:"items"`
}

func (o *objective) copied() objective {
	c := *o
	c.ObjectMeta = *o.DeepCopy()
	c.Spec = append(json.RawMessage(nil), o.Spec...)
	return c // read is immutable
}

// DeepCopyObject makes it an object of a scheme.
func (o *objective) DeepCopyObject() runtime.Object {
	c := o.copied()
	return &c
}

// DeepCopyObject makes it an object of a scheme.
func (o *oldObjective) DeepCopyObject() runtime.Object { return &oldObjective{o.copied()} }

// DeepCopyObject makes it an object of a scheme.
func (l *objectiveList) DeepCopyObject() runtime.Object {
	c := &objectiveList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, l.Items[i].copied())
	}
	return c
}

// DeepCopyObject makes it an object of a scheme.
func (l *oldObjectiveList) DeepCopyObject() runtime.Object {
	c := &oldObjectiveList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, oldObjective{l.Items[i].copied()})
	}
	return c
}

// addObjectives makes a scheme know both kinds.
func addObjectives(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(objectiveKind, &objective{})
	s.AddKnownTypeWithName(objectiveVersion.WithKind("InferenceObjectiveList"), &objectiveList{})
	metav1.AddToGroupVersion(s, objectiveVersion)
	s.AddKnownTypeWithName(oldObjectiveKind, &oldObjective{})
	s.AddKnownTypeWithName(oldObjectiveVersion.WithKind("InferenceObjectiveList"), &oldObjectiveList{})
	metav1.AddToGroupVersion(s, oldObjectiveVersion)
	return nil
}

// trimObjective keeps of an objective what is used.
func trimObjective(object any) (any, error) {
	switch o := object.(type) {
	case *objective:
		c := o.trimmed()
		return &c, nil
	case *oldObjective:
		return &oldObjective{o.trimmed()}, nil
	}
	return object, nil // the tombstone of a deletion that was missed
}

func (o *objective) trimmed() objective {
	c := objective{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion},
		read:       o.read,
	}
	var spec objectiveSpec
	if c.read == nil && json.Unmarshal(o.Spec, &spec) == nil {
		c.read = &spec
	}
	return c
}

// priorities are those of the objectives of a pool, by their names. In both groups,
// the newer one counts. It names those that cannot be read.
func priorities(objectives []*objective, old []*oldObjective, pool string) (byName map[string]int, odd []string) {
	byName = map[string]int{}
	add := func(o *objective) {
		switch {
		case o.read == nil:
			odd = append(odd, o.Name)
		case o.read.concerns(pool):
			byName[o.Name] = int(o.read.Priority)
		}
	}
	for _, o := range old {
		add(&o.objective)
	}
	for _, o := range objectives {
		add(o)
	}
	return byName, odd
}

// followObjectives tells of the objectives of the pool when they are others.
func (w *Watcher) followObjectives() {
	if w.fixed != nil || w.cfg.Objectives == nil {
		return
	}
	byName, odd := priorities(
		objectsOf[*objective](w.kinds.kind(objectiveKind)), objectsOf[*oldObjective](w.kinds.kind(oldObjectiveKind)),
		w.cfg.Discovery.Pool.Name)
	if w.priorities != nil && maps.Equal(w.priorities, byName) || w.priorities == nil && len(byName) == 0 && len(odd) == 0 {
		return
	}
	w.priorities = byName
	w.cfg.Objectives(byName)
	w.cfg.Log.Info("InferenceObjectives changed", "objectives", len(byName), "not_readable", odd)
}
