package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// metadataVersion is the group and version of DynamoWorkerMetadata (dynamo.md 3.2).
var metadataVersion = schema.GroupVersion{Group: "nvidia.com", Version: "v1alpha1"}

// workerMetadata is a DynamoWorkerMetadata. Its spec is free JSON that a worker
// writes, so it is taken as it is: one odd object must not fail the whole list.
type workerMetadata struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec json.RawMessage `json:"spec,omitempty"`

	said *said // what trimMetadata read from Spec
}

// workerMetadataList is a list of them.
type workerMetadataList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []workerMetadata `json:"items"`
}

// DeepCopyObject makes it an object of a scheme.
func (m *workerMetadata) DeepCopyObject() runtime.Object {
	c := *m
	c.ObjectMeta = *m.DeepCopy()
	c.Spec = append(json.RawMessage(nil), m.Spec...)
	return &c // said is immutable
}

// DeepCopyObject makes it an object of a scheme.
func (l *workerMetadataList) DeepCopyObject() runtime.Object {
	c := *l
	c.ListMeta = *l.DeepCopy()
	c.Items = make([]workerMetadata, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*workerMetadata)
	}
	return &c
}

// addMetadata makes a scheme know the kind.
func addMetadata(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(metadataKind, &workerMetadata{})
	s.AddKnownTypeWithName(metadataVersion.WithKind("DynamoWorkerMetadataList"), &workerMetadataList{})
	metav1.AddToGroupVersion(s, metadataVersion)
	return nil
}
